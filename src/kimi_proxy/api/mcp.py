"""One dispatch for every door: a decoded message in, what to send back out."""

import base64
import binascii
import logging
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kimi_proxy.api.errors import advice, rpc_failure
from kimi_proxy.core import json, jsonrpc
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
from kimi_proxy.core.jsonrpc import Call, RpcId
from kimi_proxy.features.tool import Answer, AnyTool
from kimi_proxy.services.tools.request import parse_failed

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"

VERSION_HEADER = b"mcp-protocol-version"
METHOD_HEADER = b"mcp-method"
NAME_HEADER = b"mcp-name"

# Methods whose Mcp-Name header repeats one of their params.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Headers = Iterable[tuple[bytes, bytes]]

_BASE64 = re.compile(r"=\?base64\?(.*)\?=")


def meta_of(call: Call) -> Mapping[str, JsonValue]:
    meta = call.params.get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def check(call: Call, headers: Headers | None, supported: tuple[str, ...]) -> None:
    """Refuse a request whose envelope is incomplete, contradicts its headers, or names another version."""
    meta = meta_of(call)
    for key in (VERSION, CAPABILITIES):
        if key not in meta:
            raise InvalidParams(f"_meta.{key}", "every request must carry it")
    version = meta[VERSION]
    if not isinstance(version, str):
        raise InvalidParams(f"_meta.{VERSION}", "must be a string")
    if headers is not None:
        _check_headers(call, version, headers)
    if version not in supported:
        raise UnsupportedVersion(version, supported)


def header(headers: Headers, name: bytes) -> str | None:
    """The one value of a header; two copies could be read differently by two readers."""
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        raise HeaderMismatch(f"{name.decode()} appears more than once")
    return values[0].decode("latin-1").strip() if values else None


def _check_headers(call: Call, version: str, headers: Headers) -> None:
    _must_equal(headers, VERSION_HEADER, version)
    _must_equal(headers, METHOD_HEADER, call.method)
    name = call.params.get(NAMED_BY.get(call.method, ""))
    if isinstance(name, str):
        _must_equal(headers, NAME_HEADER, name)


def _must_equal(headers: Headers, name: bytes, expected: str) -> None:
    given = header(headers, name)
    if given is None or _plain(given) != expected:
        said = "is missing" if given is None else "differs from the body"
        raise HeaderMismatch(f"the header {name.decode()} {said}")


def _plain(value: str) -> str | None:
    """A header's text; None, which equals nothing, if its base64 form is broken."""
    encoded = _BASE64.fullmatch(value)
    if encoded is None:
        return value
    try:
        raw = base64.b64decode(encoded[1], validate=True)
        return raw.decode("utf-8") if base64.b64encode(raw).decode("ascii") == encoded[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None


Observe = Callable[[str, str, float], None]  # tool, outcome, seconds


def unobserved(tool: str, outcome: str, seconds: float) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A named registry; an alias is a further key of the same tool, and isn't listed."""

    name: str
    version: str
    instructions: str
    tools: Mapping[str, AnyTool]
    observe: Observe = unobserved
    ends_with_caller: bool = False  # calls are dropped when their caller hangs up, in every era

    def info(self) -> JsonObject:
        return {"name": self.name, "version": self.version}

    def listing(self) -> list[JsonObject]:
        """The tools as clients see them, in the registry's own order."""
        return [_described(tool) for name, tool in self.tools.items() if name == tool.name]

    def tool(self, name: str) -> AnyTool:
        found = self.tools.get(name)
        if found is None:
            raise InvalidParams("name", f"no tool {name[:80]!r} here; there are {', '.join(self.tools)}")
        return found


def _described(tool: AnyTool) -> JsonObject:
    described: JsonObject = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.schema,
        "annotations": {"readOnlyHint": tool.read_only},
    }
    return {**described, "title": tool.title} if tool.title else described


Method = Callable[[Catalog, JsonObject], Awaitable[JsonObject]]

# Lists that stay empty are declared all the same: to serve what wasn't declared breaks the protocol.
SERVER_CAPABILITIES: JsonObject = {"tools": {"listChanged": False}, "resources": {}, "prompts": {}}


def initialize(versions: tuple[str, ...]) -> Method:
    async def agree(catalog: Catalog, params: JsonObject) -> JsonObject:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if isinstance(asked, str) and asked in versions else versions[0],
            "capabilities": SERVER_CAPABILITIES,
            "serverInfo": catalog.info(),
            "instructions": catalog.instructions,
        }

    return agree


def discover(versions: tuple[str, ...]) -> Method:
    async def introduce(catalog: Catalog, params: JsonObject) -> JsonObject:
        return {
            "supportedVersions": versions,
            "capabilities": SERVER_CAPABILITIES,
            "instructions": catalog.instructions,
        }

    return introduce


async def ping(catalog: Catalog, params: JsonObject) -> JsonObject:
    return {}


async def list_tools(catalog: Catalog, params: JsonObject) -> JsonObject:
    return {"tools": catalog.listing()}


def empty(key: str) -> Method:
    async def list_none(catalog: Catalog, params: JsonObject) -> JsonObject:
        return {key: []}

    return list_none


def nothing_at(field: str, kind: str) -> Method:
    async def refuse(catalog: Catalog, params: JsonObject) -> JsonObject:
        raise NotOffered(field, kind, params.get(field))

    return refuse


class NotOffered(InvalidParams):
    """A resource or a prompt of a server that has none."""

    def __init__(self, field: str, kind: str, asked: JsonValue) -> None:
        super().__init__(field, f"this server has no {kind}")
        self.asked = asked

    def data(self) -> JsonObject:
        return {**super().data(), self.field: self.asked}


async def call_tool(catalog: Catalog, params: JsonObject) -> JsonObject:
    """Run a tool; what is wrong with the call is an error of the protocol."""
    tool, arguments = _chosen(catalog, params)
    return _rendered(await _observed(catalog, tool, arguments))


async def call_tool_kindly(catalog: Catalog, params: JsonObject) -> JsonObject:
    """Run a tool; what is wrong with its arguments is told to the model, which can mend them."""
    tool, arguments = _chosen(catalog, params)
    try:
        answer = await _observed(catalog, tool, arguments)
    except KimiProxyError as e:
        answer = Answer(advice(e), is_error=True)
    return _rendered(answer)


def direct(name: str) -> Method:
    async def call(catalog: Catalog, params: JsonObject) -> JsonObject:
        arguments = {key: value for key, value in params.items() if key != "_meta"}
        return _bare(await _observed(catalog, catalog.tool(name), arguments))

    return call


def _chosen(catalog: Catalog, params: JsonObject) -> tuple[AnyTool, JsonObject]:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise InvalidParams("name", "must be the name of a tool")
    if not isinstance(arguments, dict | None):
        raise InvalidParams("arguments", "must be an object")
    return catalog.tool(name), arguments or {}


async def _observed(catalog: Catalog, tool: AnyTool, arguments: JsonObject) -> Answer:
    start, outcome = time.perf_counter(), "failed"
    try:
        answer = await tool.call(arguments)
        outcome = "error" if answer.is_error else "ok"
    except KimiProxyError as e:
        outcome = e.code
        raise
    finally:
        catalog.observe(tool.name, outcome, time.perf_counter() - start)
    return answer


def _rendered(answer: Answer) -> JsonObject:
    result: JsonObject = {"content": [{"type": "text", "text": answer.text}], "isError": answer.is_error}
    if answer.structured is not None:
        result["structuredContent"] = answer.structured
    if answer.meta:
        result["_meta"] = answer.meta
    return result


def _bare(answer: Answer) -> JsonObject:
    """The tool's own object, without the wrapping of MCP."""
    return {"text": answer.text} if answer.structured is None else answer.structured


# Lists change with the server's version only; five minutes are safe across an upgrade.
FRESH_MS = 300_000
CACHEABLE = frozenset({"server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"})

OFFERS: dict[str, Method] = {
    "tools/list": list_tools,
    "resources/list": empty("resources"),
    "resources/templates/list": empty("resourceTemplates"),
    "resources/read": nothing_at("uri", "resources"),
    "prompts/list": empty("prompts"),
    "prompts/get": nothing_at("name", "prompts"),
}


@dataclass(frozen=True, slots=True)
class Era:
    """How a span of the protocol's history is spoken."""

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

    async def serve(self, call: Call, catalog: Catalog, headers: Headers | None) -> JsonObject:
        """The result of `call`, in the form that this era expects."""
        if self.enveloped:
            check(call, headers, self.versions)
        result = await self._method(call.method, catalog)(catalog, call.params)
        return _stamped(call.method, result, catalog) if self.enveloped else result

    def _method(self, name: str, catalog: Catalog) -> Method:
        if name in self.methods:
            return self.methods[name]
        if self.tools_as_methods and name in catalog.tools:
            return direct(name)
        raise MethodNotFound(name)


def _stamped(method: str, result: JsonObject, catalog: Catalog) -> JsonObject:
    meta = result.get("_meta")
    fresh: JsonObject = {"ttlMs": FRESH_MS, "cacheScope": "public"} if method in CACHEABLE else {}
    return {
        **result,
        **fresh,
        "resultType": "complete",
        "_meta": {**(meta if isinstance(meta, Mapping) else {}), SERVER_INFO: catalog.info()},
    }


_HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_STATELESS_VERSIONS = ("2026-07-28",)
_HELLO: dict[str, Method] = {"initialize": initialize(_HANDSHAKE_VERSIONS), "ping": ping}

# The contract's own JSON-RPC: errors are JSON-RPC errors under HTTP 200, and a tool is also a method.
PLAIN = Era(_HANDSHAKE_VERSIONS, {**_HELLO, **OFFERS, "tools/call": call_tool}, tools_as_methods=True)

# `initialize` first; a tool's complaint is a result that the model reads.
HANDSHAKE = Era(
    _HANDSHAKE_VERSIONS,
    {**_HELLO, **OFFERS, "tools/call": call_tool_kindly},
    statuses={-32700: 400, -32600: 400},
)

# No handshake: each request carries its envelope, each result says what it is.
STATELESS = Era(
    _STATELESS_VERSIONS,
    {"server/discover": discover(_STATELESS_VERSIONS), **OFFERS, "tools/call": call_tool_kindly},
    statuses={
        -32700: 400,
        -32600: 400,
        -32602: 400,
        -32020: 400,
        -32021: 400,
        -32022: 400,
        -32601: 404,
        -32603: 500,
    },
    enveloped=True,
)


@dataclass(frozen=True, slots=True)
class Door:
    """The eras that one entrance speaks: `era`, and `enveloped` to whoever sends an envelope."""

    era: Era
    enveloped: Era | None = None

    def era_of(self, call: Call, headers: Headers) -> Era:
        """A plain `initialize` selects the old era, whatever its headers say."""
        if self.enveloped is None:
            return self.era
        if VERSION in meta_of(call) or call.method == "server/discover":
            return self.enveloped
        version = next((v.decode("latin-1") for k, v in headers if k == VERSION_HEADER), None)
        known = version is None or version in self.era.versions
        return self.era if known or call.method == "initialize" else self.enveloped


RPC = Door(PLAIN)
MCP = Door(HANDSHAKE, STATELESS)


MAX_BATCH = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """What to send back, and the HTTP status for it; None if nothing was asked."""

    value: JsonValue
    status: int


NOTHING = Reply(None, 202)


async def reply(raw: bytes, door: Door, catalog: Catalog, headers: Headers | None = None) -> Reply:
    """Answer one JSON text; `headers` are those it came with, if it came over HTTP."""
    try:
        message = json.decode(raw)
    except ParseError as e:
        parse_failed(str(e))
        return _refusal(None, e, door.era)
    return await reply_to(message, door, catalog, headers)


async def reply_to(message: JsonValue, door: Door, catalog: Catalog, headers: Headers | None = None) -> Reply:
    try:
        if isinstance(message, list):
            return await _reply_to_all(message, door.era, catalog)
        call = jsonrpc.read(message)
    except InvalidRequest as e:
        return _refusal(jsonrpc.id_of(message), e, door.era)
    if call is None or call.notification:
        return NOTHING
    era = door.era_of(call, headers or ())
    response = await answer(call, era, catalog, headers)
    return Reply(response, era.status_of(response))


async def answer(call: Call, era: Era, catalog: Catalog, headers: Headers | None = None) -> JsonObject:
    """The response to a call: its result, or what was wrong with it."""
    try:
        result = await era.serve(call, catalog, headers)
    except KimiProxyError as e:
        return rpc_failure(call.id, e)
    except Exception as e:  # whoever waits for this id gets an answer, whatever broke
        log.exception("call failed", extra={"method": call.method[:80]})
        return rpc_failure(call.id, e)
    return jsonrpc.success(call.id, result)


async def _reply_to_all(messages: Sequence[JsonValue], era: Era, catalog: Catalog) -> Reply:
    if not 0 < len(messages) <= MAX_BATCH:
        raise InvalidRequest(f"a batch holds 1 to {MAX_BATCH} messages")
    responses = [await _reply_to_one(message, era, catalog) for message in messages]
    asked = [response for response in responses if response is not None]
    return Reply(asked, 200) if asked else NOTHING


async def _reply_to_one(message: JsonValue, era: Era, catalog: Catalog) -> JsonObject | None:
    try:
        call = jsonrpc.read(message)
    except InvalidRequest as e:
        return rpc_failure(jsonrpc.id_of(message), e)
    return None if call is None or call.notification else await answer(call, era, catalog)


def _refusal(call_id: RpcId, error: KimiProxyError, era: Era) -> Reply:
    response = rpc_failure(call_id, error)
    return Reply(response, era.status_of(response))
