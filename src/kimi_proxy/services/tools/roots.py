"""MCP roots over HTTP: if a client declares the folders it works in, the tools' paths begin there.

With a handshake, the server asks a client once per session, on the stream that answers its own call. Without one, the
first response to a call requests the roots, and the client repeats the call with them. Only programs of this machine's
own user are asked; all others can access only the folders that the server was started for.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from kimi_proxy.core import jsonrpc, mcp
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy import client_roots

FILE_TOOLS = frozenset({"read", "grep", "bash"})  # their paths begin in the client's folder
SESSION_HEADER = "mcp-session-id"
CHANGED = "notifications/roots/list_changed"
METHOD, KEY = "roots/list", "roots"
PREFIX = "roots-"  # of the sessions whose client can be asked: a later process knows them, too
ASK_TIMEOUT_S = 5.0
MAX_SESSIONS, REMEMBER_S = 1000, 3600.0


@dataclass(frozen=True, slots=True)
class RootsQuestion:
    """The request for roots that was sent to a session's client."""

    session: str
    answer: "asyncio.Future[tuple[str, ...]]"


class KnownRoots:
    """The roots of sessions, and the questions that are open."""

    def __init__(self, timeout_s: float = ASK_TIMEOUT_S, now: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_s
        self._roots: LruCache[str, tuple[str, ...]] = LruCache(MAX_SESSIONS, ttl_s=REMEMBER_S, now=now)
        self._open: dict[str, RootsQuestion] = {}

    def forget(self, session: str) -> None:
        self._roots.forget(session)

    async def of(self, session: str, send: jsonrpc.Listener | None) -> tuple[str, ...]:
        """Return the roots of a session; () if they are unknown and its client cannot be asked or does not answer."""
        known = self._roots.get(session)
        if known is None and send is not None:
            known = await self._ask_client(session, send)
            self._roots.put(session, known)
        return known or ()

    async def _ask_client(self, session: str, send: jsonrpc.Listener) -> tuple[str, ...]:
        id = PREFIX + secrets.token_hex(16)
        question = self._open[id] = RootsQuestion(session, asyncio.get_running_loop().create_future())
        send({"jsonrpc": "2.0", "id": id, "method": METHOD})
        try:
            return await asyncio.wait_for(question.answer, self._timeout_s)
        except TimeoutError:
            return ()
        finally:
            del self._open[id]

    def answer(self, session: str, message: JsonValue) -> None:
        """Accept a client's answer, if that session was asked."""
        if not isinstance(message, dict):
            return
        question = self._open.get(str(message.get("id")))
        if question is not None and question.session == session and not question.answer.done():
            question.answer.set_result(_uris(message.get("result")))


@dataclass(slots=True)
class RootsClient:
    """The client of one HTTP request."""

    known: KnownRoots
    is_own: bool  # a program of the user who runs the server, on the same machine
    session: str
    new_session: str = ""  # the id that `initialize` is answered with

    @property
    def can_be_asked(self) -> bool:
        return self.is_own and self.session.startswith(PREFIX)


_client: ContextVar[RootsClient | None] = ContextVar("client", default=None)


def serve_client(client: RootsClient) -> None:
    """Let the other functions here act for this client, in the context of its request."""
    _client.set(client)


def on_initialize(params: JsonObject) -> None:
    """Start a session with a client that declares roots."""
    client = _client.get()
    match params:
        case {"capabilities": {"roots": dict()}} if client is not None and client.is_own:
            client.new_session = PREFIX + secrets.token_hex(16)


def on_message(message: JsonValue) -> None:
    """Take a client's answer, or the notice that its roots changed."""
    client = _client.get()
    if client is None or not client.is_own:
        return
    match message:
        case {"method": str(method)}:
            if method == CHANGED:
                client.known.forget(client.session)
        case _:
            client.known.answer(client.session, message)


async def require_roots(tool: str, params: JsonObject) -> JsonObject | None:
    """Let the paths of a call begin in the client's roots. Return the result that asks for them, if it has to."""
    client = _client.get()
    if client is None or tool not in FILE_TOOLS:
        return None
    roots: tuple[str, ...] = ()
    if not client.is_own:
        pass
    elif mcp.is_stateless({"params": params}):
        match params:
            case {"inputResponses": {"roots": given}}:
                roots = _uris(given)
            case {"_meta": {mcp.META_CAPABILITIES: {"roots": dict()}}}:
                return {"resultType": "input_required", "inputRequests": {KEY: {"method": METHOD}}}
    elif client.can_be_asked:
        roots = await client.known.of(client.session, jsonrpc.listener())
    client_roots.begin_in(roots)
    return None


def _uris(result: JsonValue) -> tuple[str, ...]:
    match result:
        case {"roots": list(roots)}:
            return tuple(uri for root in roots if isinstance(root, dict) and isinstance(uri := root.get("uri"), str))
    return ()
