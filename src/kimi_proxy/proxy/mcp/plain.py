"""A server that takes JSON-RPC by POST and keeps no session: messages pass as they are."""

from collections.abc import Mapping

from kimi_proxy.core.types import JsonObject
from kimi_proxy.proxy.mcp.answers import with_id
from kimi_proxy.proxy.mcp.exchange import Exchange, Refused, translated


class Plain:
    def __init__(self, server: str, url: str, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._exchange = Exchange(server, url, headers)

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        try:
            async with translated(self._server, timeout_s):
                answer = (await self._exchange.send(message)).message
        except Refused as e:
            if e.answer is None:
                raise
            answer = e.answer
        return None if answer is None else with_id(answer, message["id"])

    async def close(self) -> None:
        await self._exchange.close()
