"""Listening on a port: bound before anything else, stopped within seconds, never open to the network by chance."""

import asyncio
import errno
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kimi_proxy.api.connection import BoundedProtocol, BoundedSocket
from kimi_proxy.api.errors import refusal
from kimi_proxy.core.errors import ConfigError

GRACE_S = 5
LAST_WORD_S = 0.5
KEEP_ALIVE_S = 75  # longer than the pools of common clients keep a connection, so that they close first
MAX_CONNECTIONS = 1000
MAX_WORD_BYTES = 64 * 1024  # of what somebody says on a WebSocket
PING_S = 4.0  # a WebSocket is asked this often whether somebody is there, and has as long to answer

STOPPED = refusal(503, "stopping", "the server is stopping: ask again once it is back", {"retry-after": "2"})

Occupant = Callable[[str, int], object]
T = TypeVar("T")


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    stop: asyncio.Event,
    token: bool = False,
    on_ready: Callable[[str, int], None] = lambda host, port: None,
    occupant: Occupant = lambda host, port: None,
) -> None:
    """Serve `app` until `stop` is set; ConfigError if the address can't or mustn't be used.

    `on_ready` is told the address once it answers, `occupant` names who holds a port that is taken.
    """
    refuse_exposure(host, token)
    try:
        listener = bind(host, port)
    except (OSError, UnicodeError) as e:
        raise ConfigError(await _why_not(host, port, e, occupant)) from e
    server = _Server(_settings(_stoppable(app)), lambda: on_ready(host, listener.getsockname()[1]))
    watch = asyncio.create_task(_stop(server, stop))
    try:
        with listener:
            await server.serve(sockets=[listener])
        if cut_off := server.server_state.tasks:
            await asyncio.wait(cut_off, timeout=LAST_WORD_S)
    finally:
        watch.cancel()


def refuse_exposure(host: str, token: bool) -> None:
    """Beyond loopback anybody on the network could read what is kept here."""
    if not token and not is_loopback(host):
        raise ConfigError(
            f"{host or 'every interface'} can be reached from the network: set KIMI_PROXY_TOKEN, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two servers share one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Taken ports are found out here, and nobody can slip in between this and the first accept.
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """An event that the first of these signals sets; the second one ends the process as usual."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _ends()}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, frame: object) -> None:
        restore()
        loop.call_soon_threadsafe(stop.set)

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield stop
    finally:
        restore()


def _ends() -> Iterator[signal.Signals]:
    """What asks us to stop; the end of our terminal does, unless nohup has us ignore it."""
    yield signal.SIGINT
    yield signal.SIGTERM
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        yield signal.SIGHUP


def run(main: Coroutine[object, object, T]) -> T:
    """Run `main` on the fastest event loop there is."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the process, which may run more than one server."""
        yield


def _settings(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws=BoundedSocket,
        ws_max_size=MAX_WORD_BYTES,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,  # it costs a viewer 64 KB here, and the wire is short
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        headers=[("x-content-type-options", "nosniff")],
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )


def _stoppable(app: ASGIApp) -> ASGIApp:
    """What outlives the grace period is cancelled; its client is told, and the log needs no traceback."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, noted)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise
            if not started:
                await STOPPED(scope, receive, send)

    return answer


async def _stop(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


async def _why_not(host: str, port: int, error: Exception, occupant: Occupant) -> str:
    where = f"{host or '*'}:{port}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        who = await asyncio.to_thread(occupant, host, port) or "another program"
        return f"{where} is taken by {who}: stop it, or choose another port"
    return f"cannot listen on {where}: {error}"
