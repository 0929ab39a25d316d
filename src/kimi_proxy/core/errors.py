"""Every error of kimi-proxy, the reasons why a request was not changed, and the warning codes.

KimiProxyError
├── BadRequest                an invalid request
│   ├── ParseError            not JSON, or nested too deep             -32700
│   ├── InvalidRequest        JSON, but not a JSON-RPC request         -32600
│   ├── MethodNotFound        no such JSON-RPC method                  -32601
│   ├── InvalidParams         an argument is missing or wrong          -32602
│   ├── HeaderMismatch        HTTP headers that contradict the body    -32020
│   ├── UnsupportedVersion    an MCP revision that is not supported    -32022
│   ├── PruneIdNotFound       nothing is stored under this id          -32004
│   ├── InvalidRange          an invalid line range                    -32005
│   ├── UnknownServer         no MCP server of that name is configured -32001
│   ├── ServerNotRun          an MCP server that we do not run, so we cannot start or stop it
│   ├── CallRefused           a tool call that the gateway rejects     -32602
│   ├── NoProvider            no configured provider offers this model
│   ├── SessionNotFound       no session has this id or name
│   ├── NothingSeen           no request of a session has been seen since the start
│   └── CompressionRefused    a history that cannot be compressed or restored now
├── RateLimited               a provider's requests_per_minute limit is reached
│   └── BudgetExceeded        a budget of a person, team or model is used up
├── AccessDenied              the data belongs to another person, or the route is for admins
│   └── LoginFailed           a login to the dashboard failed; has the reason
├── ConfigError               invalid settings; the server does not start
├── StoreUnavailable          an original could not be committed or read
├── FileRefused               a client's configuration file cannot be changed safely
├── ToolFailed                a file, a command or a search failed; the message is for the model
└── UpstreamError             an upstream server failed
    ├── RerankFailed          the reranker returned no scores; has the warning code
    ├── PruneFailed           a tool's output could not be pruned; has the reason
    ├── UpstreamUnreachable   a server is down                         -32002
    ├── UpstreamTimeout       a server did not answer in time          -32002
    ├── UpstreamUnreadable    a server's response cannot be read      -32003
    ├── UpstreamRefused       a server refused a follow-up request; has its status and its own error
    └── UpstreamDisconnected  a server closed the connection in the middle of its response
"""

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NewType, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kimi_proxy.core.caller import Caller
    from kimi_proxy.core.json import JsonObject

RequestReason = Literal["nothing_to_do", "no_larger_model", "exceeds_window", "attested", "observing", "safety_check"]
ToolResultReason = Literal[
    "below_threshold",
    "recovered",
    "asked_again",
    "not_worth_resending",
    "recall_refused",
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
InstructionsReason = Literal["instructions_too_long", "no_place_for_instructions", "spoils_prompt_cache"]
CompressionRefusal = Literal["nothing_to_compress", "nothing_to_undo", "kept_by_provider", "compressed_meanwhile"]
CompressionReason = (
    CompressionRefusal
    | Literal["history_changed", "compression_taken_back", "compression_cooldown", "compression_limit"]
)
Reason = RequestReason | ToolResultReason | InstructionsReason | CompressionReason
Shortening = Literal["pruned", "masked", "thinned", "repeated", "aged"]

# Any other reason: the name of a failed stage, or a reason stored by another version.
OtherReason = NewType("OtherReason", str)

AnyReason = Reason | Shortening | OtherReason

LoginReason = Literal[
    "off",
    "busy",
    "expired",
    "denied",
    "invalid",
    "unknown",
    "revoked",
    "taken",
    "issuer_away",
    "store_away",
]
NotRunReason = Literal["switched_off", "elsewhere", "no_root"]  # why we cannot start or stop an MCP server

RerankerWarning = Literal["deepinfra_http_error", "deepinfra_config_error", "deepinfra_parse_error"]
WarningCode = (
    Literal[
        "constraints_unmet",
        "nothing_worth_cutting",
        "scorer_refused",
        "cache_hit",
        "recovery_unavailable",
        "timeout",
        "input_too_large",
        "internal_error",
        "deepinfra_error",
        "deepinfra_docs_truncated",
    ]
    | RerankerWarning
)

R = TypeVar("R", bound=str)


def location(error: BaseException) -> str:
    """Return the type of an error and where it was raised: `KeyError at score.py:42`."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


class KimiProxyError(Exception):
    """Base class of our errors; `code` is the same in every protocol. Subclasses pass these as class arguments.

    Everyone may read the message. `detail` follows it for admins, for the owner of a machine and in the log: it may
    name addresses and paths, and quote programs.
    """

    code: ClassVar[str] = "internal_error"
    rpc_code: ClassVar[int] = -32603
    http_status: ClassVar[int] = 500

    def __init__(self, message: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail

    @property
    def full(self) -> str:
        return f"{self}{self.detail}"

    def explain(self, who: "Caller") -> str:
        """Return the message as this person may read it."""
        return self.full if who.is_admin else str(self)

    def __init_subclass__(cls, code: str = "", rpc_code: int = 0, http_status: int = 0, **more: object) -> None:
        super().__init_subclass__(**more)
        cls.code = code or cls.code
        cls.rpc_code = rpc_code or cls.rpc_code
        cls.http_status = http_status or cls.http_status

    def data(self) -> "JsonObject":
        """Return the fields for programs, which accompany the message."""
        return {"code": self.code}


class BadRequest(KimiProxyError, code="bad_request", rpc_code=-32600, http_status=400):
    pass


class ParseError(BadRequest, code="parse_error", rpc_code=-32700):
    pass


class InvalidRequest(BadRequest, code="invalid_request", rpc_code=-32600):
    pass


class MethodNotFound(BadRequest, code="method_not_found", rpc_code=-32601, http_status=404):
    def __init__(self, method: str) -> None:
        super().__init__(f"unknown method {method[:80]!r}")


class InvalidParams(BadRequest, code="invalid_params", rpc_code=-32602):
    def __init__(self, field: str, problem: str, others: "Sequence[tuple[str, str]]" = ()) -> None:
        """`others` are further fields that are wrong, each with its problem."""
        super().__init__("; ".join(f"{name}: {what}" for name, what in ((field, problem), *others)))
        self.field = field
        self.fields = (field, *(name for name, _ in others))

    def data(self) -> "JsonObject":
        more: JsonObject = {"fields": list(self.fields)} if len(self.fields) > 1 else {}
        return {"code": self.code, "field": self.field, **more}


class HeaderMismatch(BadRequest, code="header_mismatch", rpc_code=-32020):
    """A header contradicts the body, which could fool a proxy that routes by the header."""


class UnsupportedVersion(BadRequest, code="unsupported_protocol_version", rpc_code=-32022):
    def __init__(self, requested: str, supported: tuple[str, ...]) -> None:
        super().__init__(f"protocol version {requested[:40]!r} is not supported: use {', '.join(supported)}")
        self.requested = requested
        self.supported = supported

    def data(self) -> "JsonObject":
        return {"code": self.code, "supported": self.supported, "requested": self.requested}


class PruneIdNotFound(BadRequest, code="prune_id_not_found", rpc_code=-32004, http_status=404):
    """The original behind an id was never stored here, or has expired."""

    def __init__(self, prune_id: str, reason: Literal["unknown", "expired"]) -> None:
        unknown = f"unknown id {prune_id[:60]!r}: copy the whole id from a marker, or read the source again"
        expired = f"{prune_id[:60]!r} has expired: read the source again; raise prune_id_ttl_s to keep originals longer"
        super().__init__(expired if reason == "expired" else unknown)
        self.prune_id = prune_id
        self.reason = reason

    def data(self) -> "JsonObject":
        return {"code": self.code, "prune_id": self.prune_id[:60], "reason": self.reason}


class InvalidRange(BadRequest, code="invalid_range", rpc_code=-32005):
    def __init__(self, problem: str, max_line: int | None = None) -> None:
        super().__init__(problem)
        self.max_line = max_line

    def data(self) -> "JsonObject":
        return {"code": self.code} | ({} if self.max_line is None else {"max_line": self.max_line})


class UnknownServer(BadRequest, code="unknown_server", rpc_code=-32001, http_status=404):
    def __init__(self, server: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no MCP server is named {server[:60]!r}: use one of {', '.join(known) or '(none)'}")


class _WithReason(BadRequest, Generic[R]):
    """`reason` is for programs, the message for people and models."""

    def __init__(self, reason: R, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason

    def data(self) -> "JsonObject":
        return {"code": self.code, "reason": self.reason}


class ServerNotRun(_WithReason[NotRunReason], code="server_not_run"):
    """We start and stop only MCP servers with a command and `run`; the message says how to change that."""


class CallRefused(
    _WithReason[Literal["marker", "tool", "path"]], code="call_refused", rpc_code=-32602, http_status=200
):
    """The gateway rejected a tool call; the message explains what to do instead.

    The HTTP status is 200, because MCP clients hide the body of any other status from the model.
    """


class NoProvider(BadRequest, code="no_provider"):
    """No provider offers the requested model; the message says what to configure."""


class SessionNotFound(BadRequest, code="session_not_found", http_status=404):
    def __init__(self, session: str) -> None:
        super().__init__(f"there is no session {session[:60]!r}: kimi-proxy sessions or GET /api/sessions lists them")


class NothingSeen(BadRequest, code="no_request_seen", http_status=404):
    """Messages are kept in memory only, so only requests since the start of this process can be shown."""

    def __init__(self, session: str) -> None:
        super().__init__(f"{session[:60]!r} has sent no request since kimi-proxy started: send one, then try again")


class CompressionRefused(_WithReason[CompressionRefusal], code="compression_refused", http_status=409):
    """The history was neither compressed nor restored; `reason` says why."""


class RateLimited(KimiProxyError, code="rate_limited", http_status=429):
    def __init__(self, provider: str, retry_after_s: float) -> None:
        super().__init__(f"{provider} has reached its limit of requests_per_minute: try again later")
        self.retry_after_s = retry_after_s


class BudgetExceeded(RateLimited, code="budget_exceeded"):
    def __init__(self, budget: str, problem: str, retry_after_s: float) -> None:
        KimiProxyError.__init__(self, f"{problem}: try again when the budget {budget!r} resets, or ask an admin")
        self.budget = budget
        self.retry_after_s = retry_after_s

    def data(self) -> "JsonObject":
        return {"code": self.code, "budget": self.budget}


class BudgetUnknown(KimiProxyError, code="budget_unknown", http_status=503):
    def __init__(self, problem: str) -> None:
        super().__init__(
            f'your budget cannot be checked ({problem}), and budgets_without_store is "refuse": try again later'
        )


class AccessDenied(KimiProxyError, code="access_denied", http_status=403):
    """The message says which token is needed."""


class LoginFailed(AccessDenied, code="login_failed"):
    """The dashboard shows `reason`; the message is for the log and contains no token or code."""

    def __init__(self, reason: LoginReason, problem: str) -> None:
        super().__init__(problem)
        self.reason: LoginReason = reason


class ConfigError(KimiProxyError, code="config_error"):
    """The message names the setting and the accepted values."""


class StoreUnavailable(KimiProxyError, code="recovery_unavailable", http_status=503):
    """The store cannot commit or read now; texts are sent uncut until it can."""


class FileRefused(KimiProxyError, code="file_refused"):
    """The message says why a configuration file was not changed."""


class ToolFailed(KimiProxyError, code="tool_failed"):
    """A tool failed; `reason` is for logs, the message is for the model."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason


class UpstreamError(KimiProxyError, code="upstream_error", http_status=502):
    """An upstream server refused, stalled, or sent an unreadable response."""


class RerankFailed(UpstreamError):
    """The reranker returned no scores; `warning` is the warning code, `status` the HTTP status if there was one."""

    def __init__(self, warning: RerankerWarning, problem: str, status: int | None = None) -> None:
        super().__init__(problem)
        self.warning = warning
        self.status = status


class UpstreamUnreachable(UpstreamError, code="upstream_unreachable", rpc_code=-32002):
    """Nothing listens there, or the connection broke before a response arrived."""

    def __init__(self, problem: str, retry_after_s: float | None = None, detail: str = "") -> None:
        super().__init__(problem, detail)
        self.retry_after_s = retry_after_s

    def data(self) -> "JsonObject":
        wait: JsonObject = {} if self.retry_after_s is None else {"retry_after_s": round(self.retry_after_s, 1)}
        return {"code": self.code} | wait


class UpstreamTimeout(UpstreamError, code="upstream_timeout", rpc_code=-32002, http_status=504):
    pass


class UpstreamUnreadable(UpstreamError, code="upstream_unreadable", rpc_code=-32003):
    """The response is not JSON, not JSON-RPC, or has another id."""


class UpstreamRefused(UpstreamError, code="upstream_refused"):
    """It refused the follow-up request of an answer that has begun; `body` is its own error."""

    def __init__(self, problem: str, status: int, body: bytes) -> None:
        super().__init__(problem)
        self.status = status
        self.body = body


class UpstreamDisconnected(UpstreamError, code="upstream_disconnected"):
    pass


class PruneFailed(UpstreamError, code="prune_failed"):
    """`reason` is timeout, http_error, invalid_response, or a warning code of our own pruner."""

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(problem)
        self.reason = reason
