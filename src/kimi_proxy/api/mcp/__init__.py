"""The MCP server: from a decoded message to its response, in every supported protocol version.

Read it from top to bottom: the catalog of tools, the methods of the protocol, the versions with their envelope, the
dispatch shared by `/rpc`, `/mcp` and standard input, errors as responses."""

import base64
import binascii
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kimi_proxy.core import json, jsonrpc, mcp
from kimi_proxy.core.caller import ANONYMOUS, Caller
from kimi_proxy.core.errors import (
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    KimiProxyError,
    MethodNotFound,
    ParseError,
    UnsupportedVersion,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.jsonrpc import RpcCall, RpcId
from kimi_proxy.features.tool import AnyTool, ToolAnswer
from kimi_proxy.services.tools import roots

VERSION_HEADER = b"mcp-protocol-version"
METHOD_HEADER = b"mcp-method"
NAME_HEADER = b"mcp-name"

FRESH_MS = 300_000  # lists change with the server's version only; five minutes are safe across an upgrade

# Lists that stay empty are declared all the same: to serve what wasn't declared breaks the protocol.
SERVER_CAPABILITIES: JsonObject = {"tools": {"listChanged": False}, "resources": {}, "prompts": {}}

Headers = Iterable[tuple[bytes, bytes]]
Observe = Callable[[str, str, float], None]  # tool, outcome, seconds

INTERNAL = "internal error: the server's log has the details"

_BASE64 = re.compile(r"=\?base64\?(.*)\?=")

log = logging.getLogger(__name__)


def observe_nothing(tool: str, outcome: str, seconds: float) -> None:
    """Count nothing."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tools that one server offers; an alias is a further key of the same tool, and isn't listed."""

    name: str
    version: str
    instructions: str
    tools: Mapping[str, AnyTool]
    observe: Observe = observe_nothing
    ends_with_caller: bool = False  # calls are dropped when their caller hangs up, in every protocol version

    def info(self) -> JsonObject:
        return {"name": self.name, "version": self.version}

    def tool(self, name: str) -> AnyTool:
        found = self.tools.get(name)
        if found is None:
            raise InvalidParams("name", f"there is no tool {name[:80]!r}; use one of {', '.join(self.tools)}")
        return found

    async def call(self, who: Caller, tool: AnyTool, arguments: JsonObject) -> ToolAnswer:
        """Return the tool's answer, and count its outcome."""
        start = time.perf_counter()
        outcome = "failed"
        try:
            answer = await tool.call(who, arguments)
            is_error = answer.is_error or (answer.result is not None and answer.result.get("isError") is True)
            outcome = "error" if is_error else "ok"
        except KimiProxyError as e:
            outcome = e.code
            raise
        finally:
            self.observe(tool.name, outcome, time.perf_counter() - start)
        return answer


# The methods of the protocol.

Method = Callable[[Caller, Catalog, JsonObject], Awaitable[JsonObject]]


async def initialize(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
    wanted = params.get("protocolVersion")
    versions = mcp.HANDSHAKE_VERSIONS
    roots.on_initialize(params)
    return {
        "protocolVersion": wanted if isinstance(wanted, str) and wanted in versions else versions[0],
        "capabilities": SERVER_CAPABILITIES,
        "serverInfo": catalog.info(),
        "instructions": catalog.instructions,
    }


async def discover(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
    return {
        "supportedVersions": mcp.STATELESS_VERSIONS,
        "capabilities": SERVER_CAPABILITIES,
        "instructions": catalog.instructions,
    }


async def ping(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
    return {}


async def list_tools(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
    """Return the tools as clients see them, in the catalog's own order."""
    return {"tools": [_describe(tool) for name, tool in catalog.tools.items() if name == tool.name]}


def _describe(tool: AnyTool) -> JsonObject:
    described: JsonObject = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.schema,
        "annotations": {"readOnlyHint": tool.read_only},
    }
    return {**described, "title": tool.title} if tool.title else described


def empty(key: str) -> Method:
    async def list_none(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
        return {key: []}

    return list_none


def nothing_at(field: str, kind: str) -> Method:
    async def refuse(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
        raise NotOffered(field, kind, params.get(field))

    return refuse


class NotOffered(InvalidParams):
    """A resource or a prompt of a server that has none."""

    def __init__(self, field: str, kind: str, wanted: JsonValue) -> None:
        super().__init__(field, f"this server has no {kind}")
        self.wanted = wanted

    def data(self) -> JsonObject:
        return {**super().data(), self.field: self.wanted}


async def call_tool(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
    """Run a tool; an invalid call is an error of the protocol."""
    return _tool_result(await catalog.call(who, *_choose_tool(catalog, params)))


async def call_tool_or_report(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
    """Run a tool; wrong arguments give a result that the model reads, so that it can correct them."""
    tool, arguments = _choose_tool(catalog, params)
    if (question := await roots.require_roots(tool.name, params)) is not None:
        return question
    try:
        return _tool_result(await catalog.call(who, tool, arguments))
    except KimiProxyError as e:
        return _tool_result(ToolAnswer(advice(e, who), is_error=True))


def _choose_tool(catalog: Catalog, params: JsonObject) -> tuple[AnyTool, JsonObject]:
    name = params.get("name")
    arguments = params.get("arguments")
    if not isinstance(name, str):
        raise InvalidParams("name", "must be the name of a tool")
    if not isinstance(arguments, dict | None):
        raise InvalidParams("arguments", "must be an object")
    return catalog.tool(name), arguments or {}


def _tool_result(answer: ToolAnswer) -> JsonObject:
    if answer.result is not None:
        return answer.result
    result: JsonObject = {"content": [{"type": "text", "text": answer.text}], "isError": answer.is_error}
    if answer.structured is not None:
        result["structuredContent"] = answer.structured
    if answer.meta:
        result["_meta"] = answer.meta
    return result


def tool_as_method(name: str) -> Method:
    """Return a method that takes a tool's arguments and returns the tool's own object, without MCP's wrapping."""

    async def call(who: Caller, catalog: Catalog, params: JsonObject) -> JsonObject:
        arguments = {key: value for key, value in params.items() if key != "_meta"}
        answer = await catalog.call(who, catalog.tool(name), arguments)
        return {"text": answer.text} if answer.structured is None else answer.structured

    return call


# The protocol versions.


@dataclass(frozen=True, slots=True)
class ProtocolVersion:
    """The methods of a group of MCP revisions, and the form of their requests and results."""

    versions: tuple[str, ...]
    methods: Mapping[str, Method]
    statuses: Mapping[int, int] = field(default_factory=dict)  # JSON-RPC code → HTTP status, else 200
    tools_as_methods: bool = False
    enveloped: bool = False

    def status_of(self, response: JsonObject) -> int:
        match response:
            case {"error": {"code": int(code)}}:
                return self.statuses.get(code, 200)
            case _:
                return 200

    async def serve(self, who: Caller, call: RpcCall, catalog: Catalog, headers: Headers | None) -> JsonObject:
        """Return the result of `call`, in the form that this version expects."""
        if self.enveloped:
            check_envelope(call, headers, self.versions)
        if call.method in self.methods:
            method = self.methods[call.method]
        elif self.tools_as_methods and call.method in catalog.tools:
            method = tool_as_method(call.method)
        else:
            raise MethodNotFound(call.method)
        result = await method(who, catalog, call.params)
        return _enveloped_result(call.method, result, catalog) if self.enveloped else result


def _enveloped_result(method: str, result: JsonObject, catalog: Catalog) -> JsonObject:
    meta = result.get("_meta")
    fresh: JsonObject = {"ttlMs": FRESH_MS, "cacheScope": "public"} if method in mcp.CACHEABLE else {}
    return {
        **result,
        **fresh,
        "resultType": result.get("resultType", "complete"),
        "_meta": {**(meta if isinstance(meta, Mapping) else {}), mcp.META_SERVER: catalog.info()},
    }


def check_envelope(call: RpcCall, headers: Headers | None, supported: tuple[str, ...]) -> None:
    """Raise if a request's envelope is incomplete, contradicts its headers, or names another version."""
    meta = mcp.meta_of({"params": call.params})
    for key in (mcp.META_VERSION, mcp.META_CAPABILITIES):
        if key not in meta:
            raise InvalidParams(f"_meta.{key}", "every request must carry it")
    version = meta[mcp.META_VERSION]
    if not isinstance(version, str):
        raise InvalidParams(f"_meta.{mcp.META_VERSION}", "must be a string")
    if headers is not None:
        _must_equal(headers, VERSION_HEADER, version)
        _must_equal(headers, METHOD_HEADER, call.method)
        name = call.params.get(mcp.NAMED_BY.get(call.method, ""))
        if isinstance(name, str):
            _must_equal(headers, NAME_HEADER, name)
    if version not in supported:
        raise UnsupportedVersion(version, supported)


def _must_equal(headers: Headers, name: bytes, expected: str) -> None:
    values = [value for key, value in headers if key == name]
    if len(values) > 1:  # two copies could be read differently by two readers
        raise HeaderMismatch(f"{name.decode()} appears more than once")
    if not values or _plain(values[0].decode("latin-1").strip()) != expected:
        problem = "differs from the body" if values else "is missing"
        raise HeaderMismatch(f"the header {name.decode()} {problem}")


def _plain(value: str) -> str | None:
    """Return a header's text; None, which equals nothing, if its base64 form is broken."""
    encoded = _BASE64.fullmatch(value)
    if encoded is None:
        return value
    try:
        raw = base64.b64decode(encoded[1], validate=True)
        return raw.decode("utf-8") if base64.b64encode(raw).decode("ascii") == encoded[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


_LISTS: dict[str, Method] = {
    "tools/list": list_tools,
    "resources/list": empty("resources"),
    "resources/templates/list": empty("resourceTemplates"),
    "resources/read": nothing_at("uri", "resources"),
    "prompts/list": empty("prompts"),
    "prompts/get": nothing_at("name", "prompts"),
}
_BY_HANDSHAKE: dict[str, Method] = {"initialize": initialize, "ping": ping, **_LISTS}

# The contract's own JSON-RPC: errors are JSON-RPC errors under HTTP 200, and a tool is also a method.
PLAIN = ProtocolVersion(mcp.HANDSHAKE_VERSIONS, {**_BY_HANDSHAKE, "tools/call": call_tool}, tools_as_methods=True)

# `initialize` first; a tool's complaint is a result that the model reads.
HANDSHAKE = ProtocolVersion(
    mcp.HANDSHAKE_VERSIONS,
    {**_BY_HANDSHAKE, "tools/call": call_tool_or_report},
    statuses={-32700: 400, -32600: 400},
)

# Without a handshake, each request carries its envelope, and each result its type.
STATELESS = ProtocolVersion(
    mcp.STATELESS_VERSIONS,
    {"server/discover": discover, **_LISTS, "tools/call": call_tool_or_report},
    statuses={**dict.fromkeys((-32700, -32600, -32602, -32020, -32021, -32022), 400), -32601: 404, -32603: 500},
    enveloped=True,
)


@dataclass(frozen=True, slots=True)
class ProtocolVersions:
    """The protocols of one address: `default`, and `stateless` for clients that send an envelope."""

    default: ProtocolVersion
    stateless: ProtocolVersion | None = None

    def of(self, call: RpcCall, headers: Headers) -> ProtocolVersion:
        """Return the version of a call; a plain `initialize` selects the handshake, whatever its headers say."""
        if self.stateless is None:
            return self.default
        if mcp.is_stateless({"params": call.params}) or call.method == "server/discover":
            return self.stateless
        version = next((v.decode("latin-1") for k, v in headers if k == VERSION_HEADER), None)
        known = version is None or version in self.default.versions
        return self.default if known or call.method == "initialize" else self.stateless


RPC = ProtocolVersions(PLAIN)
MCP = ProtocolVersions(HANDSHAKE, STATELESS)
IN_PROCESS = ProtocolVersions(PLAIN, STATELESS)  # of a server that the gateway calls without a connection


# The dispatch.


@dataclass(frozen=True, slots=True)
class RpcReply:
    """The answer, None if none is due, and its HTTP status."""

    value: JsonValue
    status: int


NOTHING = RpcReply(None, 202)


async def reply(
    who: Caller, raw: bytes, versions: ProtocolVersions, catalog: Catalog, headers: Headers | None = None
) -> RpcReply:
    """Respond to one JSON text; `headers` are those of its HTTP request, if there was one."""
    try:
        message = json.decode(raw)
    except ParseError as e:
        log_unreadable(e)
        return _refusal(None, e, versions.default)
    return await reply_to(who, message, versions, catalog, headers)


async def reply_to(
    who: Caller, message: JsonValue, versions: ProtocolVersions, catalog: Catalog, headers: Headers | None = None
) -> RpcReply:
    try:
        if isinstance(message, list):
            return await _reply_to_all(who, message, versions.default, catalog)
        call = jsonrpc.read(message)
    except InvalidRequest as e:
        return _refusal(jsonrpc.id_of(message), e, versions.default)
    if call is None or call.notification:
        roots.on_message(message)
        return NOTHING
    version = versions.of(call, headers or ())
    response = await _answer(who, call, version, catalog, headers)
    return RpcReply(response, version.status_of(response))


async def _answer(
    who: Caller, call: RpcCall, version: ProtocolVersion, catalog: Catalog, headers: Headers | None = None
) -> JsonObject:
    """Return the response to a call: its result or its error."""
    try:
        result = await version.serve(who, call, catalog, headers)
    except KimiProxyError as e:
        return rpc_failure(call.id, e, who)
    except Exception as e:  # the caller waits for this id: it gets an answer, whatever broke
        log.exception("call failed", extra={"method": call.method[:80]})
        return rpc_failure(call.id, e)
    return jsonrpc.success(call.id, result)


async def _reply_to_all(
    who: Caller, messages: Sequence[JsonValue], version: ProtocolVersion, catalog: Catalog
) -> RpcReply:
    async def answer(message: JsonValue) -> JsonObject | None:
        try:
            call = jsonrpc.read(message)
        except InvalidRequest as e:
            return rpc_failure(jsonrpc.id_of(message), e)
        if call is None or call.notification:
            roots.on_message(message)
            return None
        return await _answer(who, call, version, catalog)

    responses = await jsonrpc.answer_all(messages, answer)
    return RpcReply(responses, 200) if responses else NOTHING


def log_unreadable(error: ParseError) -> None:
    # The tools take long to load, and a client that starts us waits for the first response.
    from kimi_proxy.services.tools.request import parse_failed

    parse_failed(str(error))


def _refusal(call_id: RpcId, error: KimiProxyError, version: ProtocolVersion) -> RpcReply:
    response = rpc_failure(call_id, error)
    return RpcReply(response, version.status_of(response))


def advice(error: KimiProxyError, who: Caller) -> str:
    """Return the text for a model whose tool call failed: the code, the problem, the next step."""
    if isinstance(error, InvalidParams):
        return f"{error.code}: {error}. Correct the argument {error.field!r} and call the tool again."
    return f"{error.code}: {error.explain(who)}"


def rpc_failure(call_id: RpcId, error: Exception, who: Caller = ANONYMOUS) -> JsonObject:
    """Return an error as a JSON-RPC response; an error that isn't ours reveals nothing but its code."""
    if isinstance(error, KimiProxyError):
        return jsonrpc.failure_of(call_id, error, who)
    return jsonrpc.failure(call_id, KimiProxyError.rpc_code, INTERNAL, {"code": KimiProxyError.code})
