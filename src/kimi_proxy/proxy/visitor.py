"""A client of our own servers on this machine, as an agent is one: it posts JSON and reads what streams back."""

import httpx

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import UpstreamError, UpstreamUnreachable
from kimi_proxy.core.types import JsonObject, JsonValue

PATIENCE_S = 60.0


class Visitor:
    def __init__(self, address: str) -> None:
        self._client = httpx.AsyncClient(base_url=address, trust_env=False, timeout=PATIENCE_S)

    async def ask(self, method: str, path: str, body: JsonObject | None = None, **headers: str) -> JsonValue:
        """The JSON of an answer."""
        return jsontext.decode(await self.raw(method, path, body, **headers))

    async def raw(self, method: str, path: str, body: JsonObject | None = None, **headers: str) -> bytes:
        """All of an answer; UpstreamError with its words if it is an error."""
        content = None if body is None else jsontext.encode(body)
        sent = {"content-type": "application/json"} if body is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            async with self._client.stream(method, path, content=content, headers=sent) as reply:
                answer = await reply.aread()
        except httpx.HTTPError as e:
            raise UpstreamUnreachable(f"{self._client.base_url} does not answer: {type(e).__name__}") from e
        if reply.status_code >= httpx.codes.BAD_REQUEST:
            said = answer[:300].decode("utf-8", "replace")
            raise UpstreamError(f"{method} {path} was answered with {reply.status_code}: {said}")
        return answer

    async def aclose(self) -> None:
        await self._client.aclose()
