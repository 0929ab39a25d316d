"""Code shared by all MCP servers: the handshake, and messages translated between protocol versions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from kimi_proxy.core import json, jsonrpc, mcp
from kimi_proxy.core.errors import UpstreamTimeout
from kimi_proxy.core.json import JsonObject, JsonValue

# A result of 50 MB is slow, a result of this size is a mistake.
MAX_ANSWER_BYTES = 128 * 1024**2


def reply_to_server(message: JsonObject) -> JsonObject | None:
    """Return our answer to a server's own request: we are alive, and can do nothing else for it."""
    if "method" not in message or "id" not in message:
        return None
    call_id = jsonrpc.id_of(message)
    if message["method"] == "ping":
        return jsonrpc.success(call_id, {})
    return jsonrpc.failure(call_id, -32601, "kimi-proxy does not offer this to servers")


def request(method: str, params: JsonObject) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}


INITIALIZE = request(
    "initialize",
    {"protocolVersion": mcp.HANDSHAKE_VERSIONS[0], "capabilities": {}, "clientInfo": mcp.OURSELVES},
)
INITIALIZED: JsonObject = {"jsonrpc": "2.0", "method": "notifications/initialized"}
DISCOVER = mcp.add_envelope(request("server/discover", {}))


@dataclass(frozen=True, slots=True)
class ServerIntroduction:
    """The server's answer to `initialize`, or, if it is stateless, to `server/discover`."""

    stateless: bool
    about: JsonObject

    @property
    def server(self) -> JsonValue:
        meta = self.about.get("_meta")
        return self.about.get("serverInfo") or (meta.get(mcp.META_SERVER) if isinstance(meta, Mapping) else None)

    @property
    def version(self) -> str:
        agreed = self.about.get("protocolVersion")
        return agreed if isinstance(agreed, str) and not self.stateless else mcp.STATELESS_VERSIONS[0]

    def initialize(self, wanted: JsonValue) -> JsonObject:
        """Return the answer to a client's own `initialize`, in the revision that it wants if there is one."""
        version = wanted if isinstance(wanted, str) and wanted in mcp.HANDSHAKE_VERSIONS else mcp.HANDSHAKE_VERSIONS[0]
        if not self.stateless:
            return {**self.about, "protocolVersion": version}
        server = self.server or {"name": "unknown", "version": "0"}
        kept = {key: value for key, value in self.about.items() if key in ("capabilities", "instructions")}
        return {"protocolVersion": version, "capabilities": {}, **kept, "serverInfo": server}

    def discover(self) -> JsonObject:
        if self.stateless:
            return self.about
        kept = {key: value for key, value in self.about.items() if key not in ("protocolVersion", "serverInfo")}
        offered = {"capabilities": _without_subscriptions(self.about.get("capabilities"))}
        about: JsonObject = {"supportedVersions": mcp.STATELESS_VERSIONS, **kept, **offered}
        return mcp.stamp_result("server/discover", about, self.server)


def _without_subscriptions(capabilities: JsonValue) -> JsonObject:
    """Return a server's capabilities for a stateless client, without notifications and logging."""
    given = capabilities if isinstance(capabilities, Mapping) else {}
    return {
        name: {key: value for key, value in details.items() if key not in ("listChanged", "subscribe")}
        if isinstance(details, Mapping)
        else details
        for name, details in given.items()
        if name != "logging"
    }


Send = Callable[[JsonObject], Awaitable[JsonObject | None]]


async def forward_translated(server: ServerIntroduction, message: JsonObject, send: Send) -> JsonObject | None:
    """Forward a client's message in the server's protocol version, and return the response in the client's.

    The handshake is answered from memory: a client that joins does not restart the conversation.
    """
    method = message.get("method")
    params = message.get("params")
    match method:
        case "initialize":
            wanted = params.get("protocolVersion") if isinstance(params, Mapping) else None
            return jsonrpc.success(jsonrpc.id_of(message), server.initialize(wanted))
        case "server/discover":
            return jsonrpc.success(jsonrpc.id_of(message), server.discover())
        case "ping" if server.stateless:
            return jsonrpc.success(jsonrpc.id_of(message), {})
        # Ids are ours on the way to the server: to cancel by id could hit another client's request.
        case "notifications/initialized" | "notifications/cancelled":
            return None
    answer = await send(mcp.add_envelope(message) if server.stateless else mcp.bare(message))
    if answer is None or server.stateless or not mcp.is_stateless(message):
        return answer
    result = answer.get("result")
    if not isinstance(result, dict | json.UnreadObject):
        return answer
    return {**answer, "result": mcp.stamp_result(str(method), dict(result), server.server)}


class McpClient(Protocol):
    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        """Return the answer to a request, under its own id; None for a notification or a response."""
        ...

    async def close(self) -> None: ...


@asynccontextmanager
async def within(server: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as e:
        raise UpstreamTimeout(f"{server} did not answer within {timeout_s:g} s") from e
