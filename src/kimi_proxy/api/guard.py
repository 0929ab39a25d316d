"""Access checks before every route: Host, Origin, token, content type and size.

They apply on loopback too, because a web page can send requests there. They fail closed, and a refusal says what
would be accepted.
"""

import asyncio
import base64
import hmac
import ipaddress
import re
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kimi_proxy.api.caller_watch import CallerWatch, Headers, Identify
from kimi_proxy.api.errors import RefusalCode, refusal
from kimi_proxy.api.known_addresses import KNOWN
from kimi_proxy.api.routing import Access
from kimi_proxy.core.aside import aside
from kimi_proxy.core.caller import ANONYMOUS, LOCAL, Caller
from kimi_proxy.core.chat.wires import takes_form
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.proxy import peer
from kimi_proxy.proxy.memory import UNKNOWN_BYTES

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OWN_PAGES = (b"same-origin", b"none")
# The headers in which clients of various APIs send their key; ours can accompany a key or login of theirs.
KEY_HEADERS = (b"x-kimi-proxy-token", b"x-api-key", b"api-key", b"x-goog-api-key")
DRAIN_TIMEOUT_S = 1.0
# A body in work takes about four times its size: the bytes, the parsed values, and the texts that stages look at.
WORK_FACTOR = 4
MEMORY_SHARE, MAX_ROOM_BYTES = 0.4, 2 * 1024**3  # of the process's memory, for bodies in work
PERSON_SHARE = 1 / 3  # of that room, for each person of a team
INFLATED_BYTES = 1024**2  # of a compressed body at a time
# So many wrong tokens are answered at once; after them there are ten in a second, whichever client sends them.
FREE_GUESSES, FREE_AGAIN_S, GUESS_S = 50, 10.0, 0.1
MAX_TOKENS = 4  # the maximum in one request: its own key, ours, and other values that clients add
# Of a connection that a proxy on this machine makes for a client elsewhere.
FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
SMALL_BYTES = 16 * 1024  # compressed
MAX_WINDOW_LOG = 25  # zstd keeps 2 ** this many bytes in memory: as long as a body may be
PROTOCOL = "kimi-proxy"  # the WebSocket subprotocol that a page offers in addition to the token

NamedHeaders = Mapping[bytes, Sequence[bytes]]  # the values of each name

_PORT = re.compile(r":\d+$")


@dataclass(frozen=True, slots=True)
class Rules:
    """The guard's requirements; `hosts` are accepted in addition to the loopback names, with or without a port.

    With `identify`, the token of a person is required, on loopback too.
    """

    hosts: tuple[str, ...] = ()
    token: str | None = None
    max_body_bytes: int = 32 * 1024**2
    body_timeout_s: float = 30.0
    identify: Identify | None = None
    on_denied: Callable[[Caller, str], None] | None = None  # a person who called what is for admins, and its path
    any_address: bool = False  # an IP address is accepted as Host, whichever: a page that rebinds its name has a name


@dataclass(frozen=True, slots=True)
class Refusal:
    status: int
    code: RefusalCode
    message: str
    headers: tuple[tuple[str, str], ...] = ()


BUSY = Refusal(503, "crowded", "too much is being worked on: send it again in a moment", (("retry-after", "1"),))
BODY_TIMEOUT = Refusal(408, "body_timeout", "the body did not arrive in time: send it again")
BODY_UNREADABLE = Refusal(400, "body_incomplete", "the compressed body is damaged, or not all of it came")
BODY_INCOMPLETE = Refusal(400, "body_incomplete", "the connection ended before the body did")
TOKEN_REQUIRED = Refusal(
    401,
    "token_required",
    "send the server's token as Authorization: Bearer …, as X-Api-Key, or as X-Kimi-Proxy-Token",
    (("www-authenticate", 'Bearer realm="kimi-proxy"'),),
)
PEOPLE_AWAY = Refusal(
    503, "people_unavailable", "the store that knows the people cannot be read: try again", (("retry-after", "1"),)
)
ADMINS_ONLY = Refusal(403, "admins_only", "this changes or shows what concerns everyone: an admin's token may do it")
CODINGS = (b"identity", b"zstd", b"gzip")  # Codex compresses its requests if it uses a ChatGPT login
CONTENT_ENCODING = Refusal(
    415, "content_encoding", "a body may be compressed with zstd or gzip: send it so, or as it is"
)
CONTENT_TYPE = Refusal(415, "content_type", "send JSON with Content-Type: application/json")


def is_own_client(scope: Scope) -> bool:
    """Return whether a request comes from our own user's program on this machine, without a proxy in between."""
    headers = scope["headers"]
    client = scope.get("client")
    server = scope.get("server")
    hosts = [value.decode("latin-1").lower() for name, value in headers if name == b"host"]
    if not client or not server or any(name in FORWARDED for name, _ in headers):
        return False
    if len(hosts) != 1 or hosts[0].rpartition(":")[0] not in LOOPBACK:
        return False
    try:
        is_here = all(ipaddress.ip_address(address).is_loopback for address in (client[0], server[0]))
        return is_here and peer.is_own(client, server)
    except (ValueError, peer.PeerUnknown):
        return False


class Guard:
    """An ASGI application behind its rules."""

    def __init__(
        self,
        app: ASGIApp,
        rules: Rules,
        on_refusal: Callable[[Refusal], None] = lambda _: None,
        access: Callable[[Scope], Access] = lambda _: Access.PEOPLE,  # who may send a request
        room: "Room | None" = None,  # for bodies in work; other servers of the process may share it
    ) -> None:
        self.app = app
        self.rules = rules
        self.on_refusal = on_refusal
        self.access = access
        self.room = room or Room(UNKNOWN_BYTES, rules.max_body_bytes)
        self._guesses: deque[float] = deque(maxlen=FREE_GUESSES)
        self._guessing = asyncio.Lock()
        self._watch = CallerWatch(rules.identify) if rules.identify is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = HeldBytes(self.room)
        try:
            is_request = scope["type"] != "lifespan"
            admitted = await self._admit(scope, receive, held) if is_request else Admission(receive)
            if is_request:
                self._note_address(scope, admitted)
            if isinstance(admitted, Refusal):
                self.on_refusal(admitted)
                held.release()  # a body that is refused makes room for the others before its rest is read
                await self._slow_down(admitted, scope["headers"])
                await _refuse(admitted, scope, receive, send)
            else:
                scope["state"] = {**scope.get("state", {}), "caller": admitted.caller}
                await self._run(scope, admitted, send)
        finally:
            held.release()

    def _note_address(self, scope: Scope, admitted: "Admission | Refusal") -> None:
        """Tell the server whether this request had a valid token, if it needs one."""
        known = scope.get("state", {}).get(KNOWN)
        client = scope.get("client")
        if known is None or not client or self.access(scope) < Access.PEOPLE:
            return
        if isinstance(admitted, Admission) or admitted is TOKEN_REQUIRED:
            known.note(client[0], is_valid=isinstance(admitted, Admission))

    async def _run(self, scope: Scope, admitted: "Admission", send: Send) -> None:
        if self._watch is None or not admitted.caller.person_id:
            await self.app(scope, admitted.receive, send)
        else:
            await self._watch.run(self.app, scope, admitted.receive, send, admitted.caller)

    async def _slow_down(self, refused: Refusal, headers: Headers) -> None:
        """Let wrong tokens wait for each other, once there are many of them."""
        if refused is not TOKEN_REQUIRED:
            return
        now = asyncio.get_running_loop().time()
        is_many = len(self._guesses) == FREE_GUESSES and now - self._guesses[0] < FREE_AGAIN_S
        tried = len(list(islice(tokens_in(headers), MAX_TOKENS)))
        self._guesses.extend([now] * max(1, tried))
        if is_many:
            async with self._guessing:
                await asyncio.sleep(GUESS_S)

    async def _admit(self, scope: Scope, receive: Receive, held: "HeldBytes") -> "Admission | Refusal":
        """Return who calls and where the application reads the body from, or why the request is refused."""
        access = self.access(scope)
        who = self._refusal(scope, access) or await self._caller(scope, access)
        if isinstance(who, Refusal) or not _has_body(scope["headers"]):
            return who if isinstance(who, Refusal) else Admission(receive, who)
        held.person = who.person_id
        body = await self._body(scope["headers"], receive, held)
        return body if isinstance(body, Refusal) else Admission(_replay_body(body, receive), who)

    async def _caller(self, scope: Scope, access: Access) -> Caller | Refusal:
        """Return who calls; in a team that is ANONYMOUS where no token is needed."""
        if self.rules.identify is None:
            return LOCAL
        if access < Access.PEOPLE:
            return ANONYMOUS
        try:
            who = await self.rules.identify(scope["headers"])
        except StoreUnavailable:
            return PEOPLE_AWAY
        if who is None:
            return TOKEN_REQUIRED
        if access is Access.ADMINS and not who.is_admin:
            if self.rules.on_denied is not None:
                self.rules.on_denied(who, str(scope["path"]))
            return ADMINS_ONLY
        return who

    def _refusal(self, scope: Scope, access: Access) -> Refusal | None:
        headers: Headers = scope["headers"]
        named: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            named.setdefault(name, []).append(value)
        port = scope["server"][1] if scope.get("server") else None
        ours = addresses(self.rules.hosts, port)
        return (
            _check_host(named, ours, self.rules.any_address)
            or _check_origin(access, named, ours)
            or self._check_token_count(access, headers)
            or self._check_token(access, headers)
            or _check_content(named, _has_body(headers), scope["path"])
        )

    def _check_token_count(self, access: Access, headers: Headers) -> Refusal | None:
        """Refuse a request that tries many tokens: each of them may cost a look into the store."""
        needs_token = self.rules.token is not None or self.rules.identify is not None
        if access < Access.PEOPLE or not needs_token:
            return None
        return TOKEN_REQUIRED if len(list(islice(tokens_in(headers), MAX_TOKENS + 1))) > MAX_TOKENS else None

    def _check_token(self, access: Access, headers: Headers) -> Refusal | None:
        if self.rules.token is None or self.rules.identify is not None or access < Access.PEOPLE:
            return None
        expected = self.rules.token.encode()
        return None if any(hmac.compare_digest(t, expected) for t in tokens_in(headers)) else TOKEN_REQUIRED

    async def _body(self, headers: Headers, receive: Receive, held: "HeldBytes") -> bytes | Refusal:
        limit = self.rules.max_body_bytes
        if any(int(announced) > limit for announced in _values(headers, b"content-length")):
            return refuse_size(limit)
        try:
            async with asyncio.timeout(self.rules.body_timeout_s):
                body = await _receive_body(receive, limit, held.take)
        except TimeoutError:
            return BODY_TIMEOUT
        coding = next(iter(_values(headers, b"content-encoding")), CODINGS[0])
        if isinstance(body, Refusal) or coding == CODINGS[0]:
            return body
        return await _decompress(body, coding, limit, held)


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that may go on: where its body is read from, and who sends it."""

    receive: Receive
    caller: Caller = LOCAL


class Room:
    """The memory for all bodies in work; in a team, each person has a share of it."""

    def __init__(self, memory_bytes: int, max_body_bytes: int) -> None:
        """`memory_bytes` may be taken at most; one body has room in any case."""
        one = WORK_FACTOR * max_body_bytes
        self._left = max(min(int(memory_bytes * MEMORY_SHARE), MAX_ROOM_BYTES), one)
        self._each = max(int(self._left * PERSON_SHARE), one)
        self._taken: dict[str, int] = {}  # by the id of a person

    def take(self, person: str, size: int) -> bool:
        """Return whether there is room for a body's next bytes; it is taken then."""
        wanted = WORK_FACTOR * size
        taken = self._taken.get(person, 0) + wanted
        if wanted > self._left or (person and taken > self._each):
            return False
        self._give(person, -wanted)
        return True

    def give_back(self, person: str, size: int) -> None:
        self._give(person, WORK_FACTOR * size)

    def _give(self, person: str, size: int) -> None:
        self._left += size
        taken = self._taken.get(person, 0) - size
        if person and taken:
            self._taken[person] = taken
        else:
            self._taken.pop(person, None)


class HeldBytes:
    """The share that one request has of the memory for all bodies."""

    def __init__(self, room: Room) -> None:
        self.person = ""
        self._room = room
        self._size = 0

    def take(self, size: int) -> bool:
        """Return whether there is room for so many bytes more; it is taken then."""
        is_room = self._room.take(self.person, size)
        self._size += size if is_room else 0
        return is_room

    def give_back(self, size: int) -> None:
        self._size -= size
        self._room.give_back(self.person, size)

    def release(self) -> None:
        self.give_back(self._size)


@lru_cache(maxsize=8)
def addresses(hosts: tuple[str, ...], port: int | None) -> frozenset[bytes]:
    """Return every spelling of our address; the port is the socket's, never one from a header."""
    hosts = (*hosts, *map(str.lower, hosts))  # browsers write them in lower case
    with_port = [name if _PORT.search(name) else f"{name}:{port}" for name in (*LOOPBACK, *hosts)]
    implied = LOOPBACK if port == 80 else ()
    return frozenset(name.encode() for name in (*with_port, *hosts, *implied))


def _check_host(headers: NamedHeaders, ours: frozenset[bytes], any_address: bool) -> Refusal | None:
    """Refuse DNS rebinding: a page whose name resolves to 127.0.0.1 still sends that name as its Host."""
    given = headers.get(b"host", ())
    if len(given) == 1 and (given[0] in ours or (any_address and _is_address(given[0]))):
        return None
    names = ", ".join(sorted(name.decode() for name in ours))
    return Refusal(421, "host", f"the Host header must be one of {names}; access.allowed_hosts adds names")


def _is_address(host: bytes) -> bool:
    """Return whether a Host header holds an IP address, with a port or without one."""
    try:
        ipaddress.ip_address(_PORT.sub("", host.decode("latin-1")).strip("[]"))
    except ValueError:
        return False
    return True


def _check_origin(access: Access, headers: NamedHeaders, ours: frozenset[bytes]) -> Refusal | None:
    for origin in headers.get(b"origin", ()):
        scheme, _, address = origin.partition(b"://")
        if scheme not in (b"http", b"https") or address not in ours:
            return Refusal(403, "origin", "pages of other origins may not call this server")
    sites = headers.get(b"sec-fetch-site")
    if (
        sites
        and any(site not in OWN_PAGES for site in sites)
        and not (access is Access.VISITORS and _is_visit(headers))
    ):
        return Refusal(403, "cross_site", "pages of other sites may not call this server")
    return None


def _is_visit(headers: NamedHeaders) -> bool:
    """Return whether a link was followed: the dashboard's page contains no data until its own scripts fetch it.

    A login returns from its issuer in the same way.
    """
    return (headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")) == ([b"navigate"], [b"document"])


def _check_content(headers: NamedHeaders, has_body: bool, path: str) -> Refusal | None:
    """Reject anything but JSON: a page can post forms and text to other origins, but JSON needs a preflight.

    Routes that forward files accept forms; a page that posts one is rejected by its origin.
    """
    codings = headers.get(b"content-encoding")
    if codings and (len(codings) > 1 or codings[0] not in CODINGS):
        return CONTENT_ENCODING
    if not has_body:
        return None
    types = headers.get(b"content-type", ())
    given = types[0].partition(b";")[0].strip().lower() if len(types) == 1 else b""
    return (
        None if given == b"application/json" or (given == b"multipart/form-data" and takes_form(path)) else CONTENT_TYPE
    )


def tokens_in(headers: Headers) -> Iterator[bytes]:
    """Return every token that a request offers, wherever its client's API puts one."""
    for name in KEY_HEADERS:
        yield from _values(headers, name)
    for credentials in _values(headers, b"authorization"):
        scheme, _, token = credentials.partition(b" ")
        if scheme.lower() == b"bearer":
            yield token.strip()
    # A page cannot set headers for a WebSocket, but it can offer protocols.
    for offered in _values(headers, b"sec-websocket-protocol"):
        for protocol in offered.split(b","):
            prefix, _, coded = protocol.strip().partition(b".")
            if prefix == b"bearer":
                yield _decode_base64(coded)


def cookie_in(headers: Headers, name: str) -> str:
    """Return the value of a cookie; "" if there is none, or more than one: another page has set one of them."""
    pairs = (each.partition(b"=") for value in _values(headers, b"cookie") for each in value.split(b";"))
    found = [value.strip() for key, _, value in pairs if key.strip() == name.encode()]
    return found[0].decode("latin-1") if len(found) == 1 else ""


def _decode_base64(coded: bytes) -> bytes:
    """Return the bytes of unpadded URL-safe base64; none if it is something else."""
    try:
        return base64.b64decode(coded + b"=" * (-len(coded) % 4), b"-_", validate=True)
    except ValueError:
        return b""


def _has_body(headers: Headers) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers)


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


async def _refuse(refused: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    headers = dict(refused.headers)
    if _has_body(scope["headers"]) and not await _drain(scope["headers"], receive):
        headers["connection"] = "close"
    answer = refusal(refused.status, refused.code, refused.message, headers, scope["path"])
    await answer(scope, receive, send)


async def _receive_body(receive: Receive, limit: int, take: Callable[[int], bool]) -> bytes | Refusal:
    """Return the whole body, or a refusal as soon as it exceeds `limit` or the memory for bodies is full."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return BODY_INCOMPLETE
        piece = message.get("body", b"")
        body += piece
        if len(body) > limit:
            return refuse_size(limit)
        if not take(len(piece)):
            return BUSY
        if not message.get("more_body", False):
            return bytes(body)


async def _decompress(body: bytes, coding: bytes, limit: int, held: HeldBytes) -> bytes | Refusal:
    """Return a decompressed body of at most `limit` bytes; room is asked for before each part of it is inflated."""
    inflater = Inflater(coding, body)
    plain = bytearray()
    while not inflater.is_over:
        if not held.take(INFLATED_BYTES):
            return BUSY
        try:
            # Of what is small, the first part is all: to wait for a thread would take longer.
            piece = await aside(len(body) <= SMALL_BYTES and not plain, inflater.next_part)
        except (zstd.ZstdError, zlib.error):
            return BODY_UNREADABLE
        held.give_back(INFLATED_BYTES - len(piece))
        plain += piece
        if len(plain) > limit:
            return refuse_size(limit)
        if not piece and not inflater.is_over:
            return BODY_UNREADABLE
    held.give_back(len(body))
    return bytes(plain)


class Inflater:
    """A compressed body, inflated part by part. Raise ZstdError or zlib.error for a damaged one."""

    def __init__(self, coding: bytes, body: bytes) -> None:
        self._left = body
        self._zstd: zstd.ZstdDecompressor | None = None
        if coding == b"zstd":
            self._zstd = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG})
        self._zlib = zlib.decompressobj(zlib.MAX_WBITS | 16)

    @property
    def is_over(self) -> bool:
        return self._zlib.eof if self._zstd is None else self._zstd.eof

    def next_part(self) -> bytes:
        """Return at most INFLATED_BYTES more; none if the body ends too early."""
        given, self._left = self._left, b""
        if self._zstd is not None:
            return self._zstd.decompress(given, INFLATED_BYTES)
        part = self._zlib.decompress(given, INFLATED_BYTES)
        self._left = self._zlib.unconsumed_tail
        return part


async def _drain(headers: Headers, receive: Receive) -> bool:
    """Discard the rest of a body, because many clients read no answer while they write. Return whether it ended."""
    if _values(headers, b"expect"):  # reading would ask the client to send it
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_TIMEOUT_S):
            while (message := await receive())["type"] == "http.request":
                if not message.get("more_body", False):
                    return True
    return False


def refuse_size(limit: int) -> Refusal:
    return Refusal(413, "body_too_large", f"a body has at most {limit} bytes here")


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receive that gives the body as one message, then the messages of the connection."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
