"""What the tests of chat client share with others."""

import asyncio
import socket
import struct
from contextlib import suppress

from tests.support.api.proxy_world import Proxy

HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"

PHASES = ("connected", "in the head", "in the body", "asked", "answered in part")


async def gone_at(p: Proxy, phase: str) -> None:
    """Connect, go on to a phase of a request, and reset the connection."""
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    head = (HEAD.format(path="/v1/chat/completions", port=p.port) + f"Content-Length: {len(body)}\r\n\r\n").encode()
    sent = {"connected": b"", "in the head": head[:40], "in the body": head + body[:20]}.get(phase, head + body)
    reader, writer = await asyncio.open_connection("127.0.0.1", p.port)
    writer.write(sent)
    await writer.drain()
    if phase == "answered in part":
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                await reader.read(1)
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
