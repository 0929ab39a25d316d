"""A chat request as it was received, and how its session is found."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.features.chat.sessions import LOCAL_IDS, Session, session_of
from kimi_proxy.proxy.headers import Header


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request as received."""

    caller: Caller
    wire: Wire
    body: bytes
    headers: tuple[Header, ...] = ()
    query: str = ""
    cloud: str = ""  # the cloud whose form of the API it uses: a provider of that type is preferred
    shows_usage: bool = False  # the answer includes a token count that the client did not ask for


# Returns the session that a request names or starts.
SessionOf = Callable[[Caller, Request, Mapping[bytes, bytes], str], Awaitable[Session]]


class SessionFinder(Protocol):
    async def find(self, who: Caller, request: Request, headers: Mapping[bytes, bytes], provider: str) -> Session: ...


class LocalSessions:
    """Finds one person's sessions from each request alone, without memory of earlier ones."""

    async def find(self, who: Caller, request: Request, headers: Mapping[bytes, bytes], provider: str) -> Session:
        return session_of(request, headers, provider, LOCAL_IDS)
