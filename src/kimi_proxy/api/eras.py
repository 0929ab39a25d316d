"""The eras of MCP as a table: which methods each one has, and how it says that something is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kimi_proxy.api import envelope, methods
from kimi_proxy.api.catalog import Catalog
from kimi_proxy.api.methods import Method
from kimi_proxy.core.errors import MethodNotFound
from kimi_proxy.core.jsonrpc import Call
from kimi_proxy.core.types import JsonObject

# Lists change with the server's version only; five minutes are safe across an upgrade.
FRESH_MS = 300_000
CACHEABLE = frozenset({"server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list"})

OFFERS: dict[str, Method] = {
    "tools/list": methods.list_tools,
    "resources/list": methods.empty("resources"),
    "resources/templates/list": methods.empty("resourceTemplates"),
    "resources/read": methods.nothing_at("uri", "resources"),
    "prompts/list": methods.empty("prompts"),
    "prompts/get": methods.nothing_at("name", "prompts"),
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

    async def serve(self, call: Call, catalog: Catalog, headers: envelope.Headers | None) -> JsonObject:
        """The result of `call`, in the form that this era expects."""
        if self.enveloped:
            envelope.check(call, headers, self.versions)
        result = await self._method(call.method, catalog)(catalog, call.params)
        return _stamped(call.method, result, catalog) if self.enveloped else result

    def _method(self, name: str, catalog: Catalog) -> Method:
        if name in self.methods:
            return self.methods[name]
        if self.tools_as_methods and name in catalog.tools:
            return methods.direct(name)
        raise MethodNotFound(name)


def _stamped(method: str, result: JsonObject, catalog: Catalog) -> JsonObject:
    meta = result.get("_meta")
    fresh: JsonObject = {"ttlMs": FRESH_MS, "cacheScope": "public"} if method in CACHEABLE else {}
    return {
        **result,
        **fresh,
        "resultType": "complete",
        "_meta": {**(meta if isinstance(meta, Mapping) else {}), envelope.SERVER_INFO: catalog.info()},
    }


_HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_STATELESS_VERSIONS = ("2026-07-28",)
_HELLO: dict[str, Method] = {"initialize": methods.initialize(_HANDSHAKE_VERSIONS), "ping": methods.ping}

# The contract's own JSON-RPC: errors are JSON-RPC errors under HTTP 200, and a tool is also a method.
PLAIN = Era(_HANDSHAKE_VERSIONS, {**_HELLO, **OFFERS, "tools/call": methods.call_tool}, tools_as_methods=True)

# `initialize` first; a tool's complaint is a result that the model reads.
HANDSHAKE = Era(
    _HANDSHAKE_VERSIONS,
    {**_HELLO, **OFFERS, "tools/call": methods.call_tool_kindly},
    statuses={-32700: 400, -32600: 400},
)

# No handshake: each request carries its envelope, each result says what it is.
STATELESS = Era(
    _STATELESS_VERSIONS,
    {"server/discover": methods.discover(_STATELESS_VERSIONS), **OFFERS, "tools/call": methods.call_tool_kindly},
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

    def era_of(self, call: Call, headers: envelope.Headers) -> Era:
        """A plain `initialize` selects the old era, whatever its headers say."""
        if self.enveloped is None:
            return self.era
        if envelope.VERSION in envelope.meta_of(call) or call.method == "server/discover":
            return self.enveloped
        version = next((v.decode("latin-1") for k, v in headers if k == envelope.VERSION_HEADER), None)
        known = version is None or version in self.era.versions
        return self.era if known or call.method == "initialize" else self.enveloped


RPC = Door(PLAIN)
MCP = Door(HANDSHAKE, STATELESS)
