"""The HTTP server: bound before anything else starts, stopped within seconds, never exposed without a token."""

import asyncio
import errno
import ipaddress
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, TypeVar

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets import http11
from websockets.frames import CloseCode, Frame

from kimi_proxy.api.errors import refusal
from kimi_proxy.api.known_addresses import KNOWN, KnownAddresses
from kimi_proxy.core.config.sections import ShutdownSettings
from kimi_proxy.core.errors import ConfigError
from kimi_proxy.proxy import peer

HEAD_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b'content-length: 74\r\n\r\n{"error":{"code":"head_too_large","message":"the headers exceed 64 KiB"}}\n'
)
CROWDED = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json\r\n"
    b'content-length: 62\r\n\r\n{"error":{"code":"crowded","message":"too many connections"}}\n'
)
MAX_CONNECTIONS = 1000
STRANGERS_SHARE = 2 / 3  # of them, for addresses whose last request had no valid token
# Facts about a connection are in the state of each of its requests.
CONNECTION, OWNER = "connection", "owner"


class BoundedProtocol(HttpToolsProtocol):
    """Limits the connections, and the time and the size of a request's head, which uvicorn does not."""

    max_connections = MAX_CONNECTIONS
    known: ClassVar[KnownAddresses] = KnownAddresses()  # a third of the connections is kept for these

    head_s = 10.0
    max_head_bytes = 64 * 1024

    _deadline: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _is_in_head = False
    _is_in_body = False  # which may go on after its answer: an app may refuse a request by its head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, CONNECTION: set(), KNOWN: self.known}
        self._deadline = self.loop.call_later(self.head_s, transport.abort)
        is_known = self.client is not None and self.client[0] in self.known
        if len(self.connections) > self.max_connections * (1 if is_known else STRANGERS_SHARE):
            transport.write(CROWDED)
            transport.close()

    def data_received(self, data: bytes) -> None:
        was_in_body = self._is_in_body
        if not was_in_body and self._head_bytes + _head_size(data) > self.max_head_bytes:
            self._refuse_head()
            return
        super().data_received(data)
        if self.transport.get_protocol() is not self:  # it became a WebSocket
            self._end_of_head()
        elif self._is_in_head and not self.transport.is_closing():
            self._more_head(0 if was_in_body else len(data))

    def on_message_begin(self) -> None:
        self._is_in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head, self._is_in_body = False, True
        self._end_of_head()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body = False
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_of_head()
        super().connection_lost(exc)

    def _answering(self) -> bool:
        cycle: object = self.cycle  # None before the first request, though its type doesn't say so
        return isinstance(cycle, RequestResponseCycle) and not cycle.response_complete

    def _more_head(self, size: int) -> None:
        self._head_bytes += size
        if self._deadline is None and not self._answering():
            self._deadline = self.loop.call_later(self.head_s, self.transport.abort)
        if self._head_bytes > self.max_head_bytes:
            self._refuse_head()

    def _refuse_head(self) -> None:
        if self._answering():  # of the request before, which nothing may be written into
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.write(HEAD_TOO_LARGE)
            self.transport.close()

    def _end_of_head(self) -> None:
        self._head_bytes = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class OwnerProtocol(BoundedProtocol):
    """Reserves most connections for the owner; other accounts of this machine get a few, for `/health`."""

    max_strangers = 20
    strangers: ClassVar[set[asyncio.Transport]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if _is_owner({"client": self.client, "server": self.server, "state": self.app_state}):
            return
        # One that became a WebSocket is lost without a word to this protocol.
        self.strangers.difference_update([each for each in self.strangers if each.is_closing()])
        self.strangers.add(transport)
        if len(self.strangers) > self.max_strangers:
            transport.write(CROWDED)
            transport.close()


def _head_size(data: bytes) -> int:
    """Return the size of the request head at the start of `data`, complete or not."""
    end = data.find(b"\r\n\r\n")
    return len(data) if end < 0 else end


class BoundedSocket(WebSocketsSansIOProtocol):
    """Limits the messages of a WebSocket in size, number of pieces and time.

    Aborts one that no longer reads: a closing handshake would wait behind all that it has not read.
    """

    close_timeout_s = 1.0
    message_s = 30.0  # until all of a message has come

    _late: asyncio.TimerHandle | None = None

    def handle_connect(self, event: http11.Request) -> None:
        self._pieces = bytearray()
        super().handle_connect(event)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        waiting = len(self.conn.reader.buffer) + (self.conn.current_size or 0)
        if waiting and self._late is None:
            self._late = self.loop.call_later(self.message_s, self.transport.abort)
        elif not waiting:
            self._is_in_time()

    def handle_cont(self, event: Frame) -> None:
        """Add a piece of a message: a list of its pieces takes a hundred times the memory of what is in them."""
        self._pieces += event.data
        if event.fin:
            self.frames.append(bytes(self._pieces))
            self._pieces.clear()
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        self._is_in_time()
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            # uvicorn would log a traceback. 1007 is RFC 6455's number for it, sent before the connection ends.
            self.conn.fail(CloseCode.INVALID_DATA, "a text that is not UTF-8")
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()
            return
        super().send_receive_event_to_app()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_in_time()
        super().connection_lost(exc)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            self.loop.call_later(self.close_timeout_s, self.transport.abort)

    def _is_in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


AT_ONCE = ShutdownSettings()
CANCELLED_STOP_S = 0.5
KEEP_ALIVE_S = 75  # longer than the pools of common clients keep a connection, so that they close first
MAX_WEBSOCKET_MESSAGE_BYTES = 64 * 1024  # what viewers send is ignored
PING_S = 4.0  # the interval between pings of a WebSocket, and the timeout of each

MIN_TOKEN_CHARS = 16  # beyond loopback
OTHER_USER = "this server answers the user who started it: start your own, or set KIMI_PROXY_TOKEN for it and send that"
STOPPING_ANSWER = refusal(503, "stopping", "the server is stopping: ask again once it is back", {"retry-after": "2"})

Occupant = Callable[[str, int], object]
T = TypeVar("T")

log = logging.getLogger(__name__)


async def serve(
    app: ASGIApp,
    host: str,
    port: int,
    *,
    stop: asyncio.Event,
    shutdown: ShutdownSettings = AT_ONCE,
    token: bool = False,
    is_public: bool = False,
    on_ready: Callable[[str, int], None] = lambda host, port: None,
    occupant: Occupant = lambda host, port: None,
    port_setting: str = "",
) -> None:
    """Serve `app` until `stop` is set. Raise ConfigError if the address cannot or must not be used.

    Without a `token` only this machine's user may call, unless the application exposes no one's data (`is_public`).
    `on_ready` gets the address once it is ready; `occupant` identifies the program on a taken port, and `port_setting`
    names the setting for another port.
    """
    if not is_public:
        refuse_exposure(host, token)
    try:
        listener = bind(host, port)
    except (OSError, UnicodeError) as e:
        raise ConfigError(await _bind_problem(host, port, e, occupant, port_setting)) from e
    is_owned = not token and not is_public and _can_know_owner()
    checked = _for_owner(app) if is_owned else app
    settings = _settings(_with_probes(_stoppable(checked, stop), stop), shutdown.drain_s, is_owned)
    server = _Server(settings, lambda: on_ready(host, listener.getsockname()[1]))
    watch = asyncio.create_task(_stop(server, stop, shutdown.notice_s))
    try:
        with listener:
            await server.serve(sockets=[listener])
        if cut_off := server.server_state.tasks:
            await asyncio.wait(cut_off, timeout=CANCELLED_STOP_S)
    finally:
        watch.cancel()


async def serve_all(servers: Sequence[Callable[[], Coroutine[object, object, None]]], stop: asyncio.Event) -> None:
    """Serve each until `stop` is set. If one cannot listen, all stop, and its error is raised."""

    async def one(serving: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await serving()
        finally:
            stop.set()

    endings = await asyncio.gather(*map(one, servers), return_exceptions=True)
    for ending in endings:
        if ending is not None:
            raise ending


def refuse_exposure(host: str, token: bool, token_chars: int = MIN_TOKEN_CHARS) -> None:
    """Raise ConfigError without a good token beyond loopback: anyone on the network could read stored data."""
    if is_loopback(host):
        return
    if token and token_chars < MIN_TOKEN_CHARS:
        raise ConfigError(
            f"{host or 'every interface'} can be reached from the network, and KIMI_PROXY_TOKEN is easy to guess: "
            f"use at least {MIN_TOKEN_CHARS} characters, or listen on 127.0.0.1"
        )
    if not token:
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
        # A taken port is found here, and no other program can take it before the first accept.
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


@contextmanager
def stop_on_signals() -> Iterator[asyncio.Event]:
    """Yield an event that the first stop signal sets; the second signal ends the process as usual."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _stop_signals()}

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


def _stop_signals() -> Iterator[signal.Signals]:
    """Yield the signals that stop us; SIGHUP only if nohup does not ignore it."""
    yield signal.SIGINT
    yield signal.SIGTERM
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        yield signal.SIGHUP


def run(main: Coroutine[object, object, T]) -> T:
    """Run `main` on uvloop if it is installed, else on asyncio's own loop."""
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


def _settings(app: ASGIApp, drain_s: float, is_owned: bool) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=OwnerProtocol if is_owned else BoundedProtocol,
        ws=BoundedSocket,
        ws_max_size=MAX_WEBSOCKET_MESSAGE_BYTES,
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
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(drain_s),
    )


def _can_know_owner() -> bool:
    if not peer.can_ask():
        log.warning("other accounts on this machine can use the server: set KIMI_PROXY_TOKEN if there are any")
        return False
    return True


def _for_owner(app: ASGIApp) -> ASGIApp:
    """Refuse other accounts of this machine, which reach loopback as well as its owner does: `/health` is for all."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/health" or _is_owner(scope):
            await app(scope, receive, send)
        else:
            refused = refusal(403, "other_user", OTHER_USER, {"connection": "close"}, scope["path"])
            await refused(scope, receive, send)

    return answer


def _is_owner(scope: Scope) -> bool:
    """Return whether the other end is our user. Checked once per connection, which no one else can take over."""
    if not scope.get("client") or not scope.get("server"):
        return False
    known: set[str] = scope.get("state", {}).get(CONNECTION, set())
    if OWNER in known:
        return True
    try:
        is_owner = peer.is_own(scope["client"], scope["server"])
    except peer.PeerUnknown:
        return False
    if is_owner:
        known.add(OWNER)
    return is_owner


def _with_probes(app: ASGIApp, stop: asyncio.Event) -> ASGIApp:
    """Answer the probes of an orchestrator, which use an address of their own and send no token.

    Without its store a server is still ready: requests are then sent uncut.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await app(scope, receive, send)
        elif scope["path"] == "/health/live":
            await JSONResponse({"status": "live"})(scope, receive, send)
        elif scope["path"] == "/health/ready":
            ready = JSONResponse({"status": "stopping"}, 503) if stop.is_set() else JSONResponse({"status": "ready"})
            await ready(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def _stoppable(app: ASGIApp, stop: asyncio.Event) -> ASGIApp:
    """Close connections after their response once a stop is requested, so that the next request goes to another server.

    Requests cancelled after the graceful stop get 503, without a traceback in the log.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_note(message: Message) -> None:
            nonlocal started
            started = True
            if message["type"] == "http.response.start" and stop.is_set():
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        try:
            await app(scope, receive, send_and_note)
        except asyncio.CancelledError:
            if scope["type"] == "http" and not started:
                await STOPPING_ANSWER(scope, receive, send)

    return answer


async def _stop(server: uvicorn.Server, stop: asyncio.Event, notice_s: float) -> None:
    await stop.wait()
    await asyncio.sleep(notice_s)  # until a balancer has seen that we are no longer ready
    server.should_exit = True


async def _bind_problem(host: str, port: int, error: Exception, occupant: Occupant, port_setting: str) -> str:
    where = f"{host or '*'}:{port}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        who = await asyncio.to_thread(occupant, host, port) or "another program"
        how = f" with {port_setting}, or port in the configuration file" if port_setting else ""
        return f"{where} is taken by {who}: stop it, or choose another port{how}"
    return f"cannot listen on {where}: {error}"
