"""Every error of ours.

KimiProxyError
├── BadRequest                what the caller sent cannot be served as it is
│   ├── ParseError            not JSON, or nested too deep             -32700
│   ├── InvalidRequest        JSON, but not a JSON-RPC request         -32600
│   ├── MethodNotFound        no such JSON-RPC method                  -32601
│   ├── InvalidParams         an argument is missing or wrong          -32602
│   ├── HeaderMismatch        HTTP headers that contradict the body    -32020
│   ├── UnsupportedVersion    an MCP revision that isn't served        -32022
│   ├── PruneIdNotFound       nothing is kept under this id            -32004
│   ├── InvalidRange          a line range that means nothing          -32005
│   ├── UnknownServer         no MCP server of that name is configured -32001
│   ├── ServerNotRun          an MCP server that we do not run, and cannot start or stop
│   ├── CallRefused           a tool call that the gateway won't pass  -32602
│   ├── NoProvider            nobody is configured who could answer this model
│   ├── SessionNotFound       no session has this id or name
│   ├── NothingSeen           no request of a session has passed since the start
│   └── CompressionRefused    a history that cannot be compressed, or brought back, now
├── RateLimited               a provider's limit, set by its user, is reached
├── ConfigError               settings that we refuse to start with
├── StoreUnavailable          an original could not be committed or read
├── FileRefused               somebody's configuration file that we won't change
├── ToolFailed                a file, a command or a search did not work out: the model is told why
└── UpstreamError             somebody else's server failed us
    ├── RerankFailed          the reranker gave no scores: its warning says why
    ├── PruneFailed           a tool's output could not be pruned: its reason says why
    ├── UpstreamUnreachable   a server is down                         -32002
    ├── UpstreamTimeout       a server did not answer in time          -32002
    ├── UpstreamUnreadable    a server's answer means nothing          -32003
    └── UpstreamDisconnected  a server broke off in the middle of its answer"""

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NewType

if TYPE_CHECKING:
    from kimi_proxy.core.json import JsonObject

OfRequest = Literal["nothing_to_do", "no_larger_model"]
OfOutput = Literal[
    "below_threshold",
    "unread",
    "recovered",
    "asked_again",
    "not_worth_resending",
    "already_cut",
    "nothing_to_cut",
    "failures",
    "unreadable_json",
    "out_of_time",
    "store_unavailable",
    "expired",
    "switched_off",
    "failed",
]
OfInstructions = Literal["instructions_too_long", "no_place_for_instructions"]
OfRefusal = Literal["nothing_to_compress", "nothing_to_undo", "kept_by_provider"]
OfCompression = (
    OfRefusal | Literal["history_changed", "compression_taken_back", "compression_cooldown", "compression_limit"]
)
Reason = OfRequest | OfOutput | OfInstructions | OfCompression
Done = Literal["pruned", "masked"]

# No word of ours: a stage that failed, by its name, or what another version has written down.
Foreign = NewType("Foreign", str)

Why = Reason | Done | Foreign


OfReranker = Literal["deepinfra_http_error", "deepinfra_config_error", "deepinfra_parse_error"]
Warned = (
    Literal[
        "constraints_unmet",
        "scorer_refused",
        "cache_hit",
        "recovery_unavailable",
        "timeout",
        "input_too_large",
        "internal_error",
        "deepinfra_error",
        "deepinfra_docs_truncated",
    ]
    | OfReranker
)


def place(fault: BaseException) -> str:
    """Its kind and where it arose: `KeyError at score.py:42`."""
    frames = traceback.extract_tb(fault.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(fault).__name__}{where}"


# Every error of ours.
#
# KimiProxyError
# ├── BadRequest                what the caller sent cannot be served as it is
# │   ├── ParseError            not JSON, or nested too deep             -32700
# │   ├── InvalidRequest        JSON, but not a JSON-RPC request         -32600
# │   ├── MethodNotFound        no such JSON-RPC method                  -32601
# │   ├── InvalidParams         an argument is missing or wrong          -32602
# │   ├── HeaderMismatch        HTTP headers that contradict the body    -32020
# │   ├── UnsupportedVersion    an MCP revision that isn't served        -32022
# │   ├── PruneIdNotFound       nothing is kept under this id            -32004
# │   ├── InvalidRange          a line range that means nothing          -32005
# │   ├── UnknownServer         no MCP server of that name is configured -32001
# │   ├── ServerNotRun          an MCP server that we do not run, and cannot start or stop
# │   ├── CallRefused           a tool call that the gateway won't pass  -32602
# │   ├── NoProvider            nobody is configured who could answer this model
# │   ├── SessionNotFound       no session has this id or name
# │   ├── NothingSeen           no request of a session has passed since the start
# │   └── CompressionRefused    a history that cannot be compressed, or brought back, now
# ├── RateLimited               a provider's limit, set by its user, is reached
# ├── ConfigError               settings that we refuse to start with
# ├── StoreUnavailable          an original could not be committed or read
# ├── FileRefused               somebody's configuration file that we won't change
# ├── ToolFailed                a file, a command or a search did not work out: the model is told why
# └── UpstreamError             somebody else's server failed us
# ├── RerankFailed          the reranker gave no scores: its warning says why
# ├── PruneFailed           a tool's output could not be pruned: its reason says why
# ├── UpstreamUnreachable   a server is down                         -32002
# ├── UpstreamTimeout       a server did not answer in time          -32002
# ├── UpstreamUnreadable    a server's answer means nothing          -32003
# └── UpstreamDisconnected  a server broke off in the middle of its answer

NotRun = Literal["switched_off", "elsewhere"]  # why an MCP server is not ours to start and stop


class KimiProxyError(Exception):
    """Root of our errors; `code` names the error on every wire."""

    code: ClassVar[str] = "internal_error"
    rpc_code: ClassVar[int] = -32603
    http_status: ClassVar[int] = 500

    def data(self) -> "JsonObject":
        """What a program may want to read beside the message."""
        return {"code": self.code}


class BadRequest(KimiProxyError):
    code = "bad_request"
    rpc_code = -32600
    http_status = 400


class ParseError(BadRequest):
    code = "parse_error"
    rpc_code = -32700


class InvalidRequest(BadRequest):
    code = "invalid_request"
    rpc_code = -32600


class MethodNotFound(BadRequest):
    code = "method_not_found"
    rpc_code = -32601
    http_status = 404

    def __init__(self, method: str) -> None:
        super().__init__(f"unknown method {method[:80]!r}")


class InvalidParams(BadRequest):
    code = "invalid_params"
    rpc_code = -32602

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field

    def data(self) -> "JsonObject":
        return {"code": self.code, "field": self.field}


class HeaderMismatch(BadRequest):
    """A header and the body disagree; whoever routes by one and runs the other can be fooled."""

    code = "header_mismatch"
    rpc_code = -32020


class UnsupportedVersion(BadRequest):
    code = "unsupported_protocol_version"
    rpc_code = -32022

    def __init__(self, requested: str, supported: tuple[str, ...]) -> None:
        super().__init__(f"protocol version {requested[:40]!r} is not served: use {', '.join(supported)}")
        self.requested = requested
        self.supported = supported

    def data(self) -> "JsonObject":
        return {"code": self.code, "supported": self.supported, "requested": self.requested}


class PruneIdNotFound(BadRequest):
    """The originals behind an id were never here, or have expired."""

    code = "prune_id_not_found"
    rpc_code = -32004
    http_status = 404

    def __init__(self, prune_id: str, reason: Literal["unknown", "expired"]) -> None:
        what = "has expired" if reason == "expired" else "was never given out here"
        super().__init__(f"{prune_id[:60]!r} {what}: copy the id from a marker, or read the source and prune it again")
        self.prune_id = prune_id
        self.reason = reason

    def data(self) -> "JsonObject":
        return {"code": self.code, "prune_id": self.prune_id[:60], "reason": self.reason}


class InvalidRange(BadRequest):
    code = "invalid_range"
    rpc_code = -32005

    def __init__(self, problem: str, max_line: int | None = None) -> None:
        super().__init__(problem)
        self.max_line = max_line

    def data(self) -> "JsonObject":
        return {"code": self.code} | ({} if self.max_line is None else {"max_line": self.max_line})


class UnknownServer(BadRequest):
    code = "unknown_server"
    rpc_code = -32001
    http_status = 404

    def __init__(self, server: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no MCP server is named {server[:60]!r}: use one of {', '.join(known) or '(none)'}")


class ServerNotRun(BadRequest):
    """The settings decide which MCP servers are ours to start and stop; the message says how."""

    code = "server_not_run"

    def __init__(self, reason: NotRun, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason

    def data(self) -> "JsonObject":
        return {"code": self.code, "reason": self.reason}


class CallRefused(BadRequest):
    """The gateway's own refusal of a tool call; the message tells the model what to do instead."""

    code = "call_refused"
    rpc_code = -32602
    # MCP clients hide the body of any other status from the model.
    http_status = 200

    def __init__(self, reason: Literal["marker", "tool", "path"], problem: str) -> None:
        super().__init__(problem)
        self.reason = reason

    def data(self) -> "JsonObject":
        return {"code": self.code, "reason": self.reason}


class NoProvider(BadRequest):
    """A chat request that has nowhere to go; the message says what to configure."""

    code = "no_provider"


class SessionNotFound(BadRequest):
    code = "session_not_found"
    http_status = 404

    def __init__(self, session: str) -> None:
        super().__init__(f"there is no session {session[:60]!r}: GET /api/sessions lists them")


class NothingSeen(BadRequest):
    """What people say is not written down: only requests of this process's life can be looked at."""

    code = "no_request_seen"
    http_status = 404

    def __init__(self, session: str) -> None:
        super().__init__(f"no request of {session[:60]!r} has passed since kimi-proxy started: send one, and try again")


class CompressionRefused(BadRequest):
    """Nothing was compressed, or taken back; `reason` is the word for why."""

    code = "compression_refused"
    http_status = 409

    def __init__(self, reason: OfRefusal, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason

    def data(self) -> "JsonObject":
        return {"code": self.code, "reason": self.reason}


class RateLimited(KimiProxyError):
    code = "rate_limited"
    http_status = 429

    def __init__(self, provider: str, retry_after_s: float) -> None:
        super().__init__(f"{provider} is asked as often as its requests_per_minute allow: try again later")
        self.retry_after_s = retry_after_s


class ConfigError(KimiProxyError):
    """The message names the setting and says what would be accepted."""

    code = "config_error"


class StoreUnavailable(KimiProxyError):
    """The store cannot commit or read now; texts go out whole until it can."""

    code = "recovery_unavailable"
    http_status = 503


class FileRefused(KimiProxyError):
    """The message says what about a configuration file keeps us from changing it."""

    code = "file_refused"


class ToolFailed(KimiProxyError):
    """What a tool was asked for could not be done; `reason` is a word for logs, the message is for the model."""

    code = "tool_failed"

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


class UpstreamError(KimiProxyError):
    """A server that we asked refused, stalled, or answered something unreadable."""

    code = "upstream_error"
    http_status = 502


class RerankFailed(UpstreamError):
    """No scores came back; `warning` is the code that the answer carries, `status` the HTTP status if one came."""

    def __init__(self, warning: OfReranker, problem: str, status: int | None = None) -> None:
        super().__init__(problem)
        self.warning = warning
        self.status = status


class UpstreamUnreachable(UpstreamError):
    """Nobody listens there, or the connection broke before an answer came."""

    code = "upstream_unreachable"
    rpc_code = -32002

    def __init__(self, problem: str, retry_after_s: float | None = None) -> None:
        super().__init__(problem)
        self.retry_after_s = retry_after_s

    def data(self) -> "JsonObject":
        wait: JsonObject = {} if self.retry_after_s is None else {"retry_after_s": round(self.retry_after_s, 1)}
        return {"code": self.code} | wait


class UpstreamTimeout(UpstreamError):
    code = "upstream_timeout"
    rpc_code = -32002
    http_status = 504


class UpstreamUnreadable(UpstreamError):
    """The answer is not JSON, not JSON-RPC, or answers something else."""

    code = "upstream_unreadable"
    rpc_code = -32003


class UpstreamDisconnected(UpstreamError):
    code = "upstream_disconnected"


class PruneFailed(UpstreamError):
    """`reason` is the word for it: timeout, http_error, invalid_response, or a warning of our own pruner."""

    code = "prune_failed"

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason
