"""What the tests of live share with others."""

import asyncio
import socket
import time
from collections.abc import Sequence

from tests.support.api.watching import Watcher
from tests.support.processes import until

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.services.events import Hub


def frozen_viewer(port: int) -> socket.socket:
    """Somebody who asks for everything and reads nothing of it."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", port))
    line.sendall(
        f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    return line


def is_cut(line: socket.socket) -> bool:
    """Whether the other end is gone, told without reading: a cut resets the line."""
    try:
        line.send(b"\x8a\x80\x00\x00\x00\x00")  # a pong that nobody asked for
    except OSError:
        return True
    return False


class Audience:
    """Viewers who look, and how late they hear of things."""

    def __init__(self, hub: Hub, watchers: Sequence[Watcher]) -> None:
        self._hub = hub
        self._watchers = watchers
        self._told = 0

    async def hears_in(self, events: int = 4) -> float:
        """Seconds until the last of them has heard the last of some events."""
        began = time.monotonic()
        for _ in range(events):
            self._told += 1
            self._hub.publish(LOCAL, "metric", {"n": self._told, "padding": "x" * 3000})
        await until(lambda: all(watcher.events[-1].get("n") == self._told for watcher in self._watchers))
        took = time.monotonic() - began
        await asyncio.sleep(max(0.0, 0.025 - took))
        return took
