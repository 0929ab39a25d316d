"""A server that takes JSON-RPC by POST and keeps no session: messages pass as they are."""

from collections.abc import Mapping

from kimi_proxy.core.types import JsonObject
from kimi_proxy.proxy.mcp.answers import with_id
from kimi_proxy.proxy.mcp.exchange import Exchange, translated


class Plain:
    def __init__(self, server: str, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._exchange = Exchange(server, url, headers)

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        async with translated(self._server, timeout_s):
            reply = await self._exchange.send(message)
        return None if reply.message is None else with_id(reply.message, message["id"])

    async def close(self) -> None:
        await self._exchange.close()
