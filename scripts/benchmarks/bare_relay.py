"""A relay that does nothing but relay, on the libraries that the proxy uses: `python bare_relay.py URL` serves it.

What the proxy takes beyond this is its own work; the rest is HTTP in Python.
"""

import socket
import sys

import aiohttp
import uvicorn
import uvloop
from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope


class BareRelay:
    """Sends every request on with the same bytes, and its answer back."""

    def __init__(self, provider_url: str) -> None:
        self._url = provider_url
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            return
        self._session = self._session or aiohttp.ClientSession(auto_decompress=False)
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), bool(message.get("more_body"))
        url, headers = self._url + scope["path"].removeprefix("/v1"), {"content-type": "application/json"}
        async with self._session.post(url, data=body, headers=headers) as reply:
            kept = [(b"content-type", reply.content_type.encode())]
            if reply.content_length is not None:
                kept.append((b"content-length", str(reply.content_length).encode()))
            await send({"type": "http.response.start", "status": reply.status, "headers": kept, "trailers": False})
            async for piece in reply.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class AnnouncedServer(uvicorn.Server):
    """Prints its port once it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


if __name__ == "__main__":
    config = uvicorn.Config(BareRelay(sys.argv[1]), port=0, log_level="warning", lifespan="off")
    uvloop.run(AnnouncedServer(config).serve())
