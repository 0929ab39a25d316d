"""A server that speaks MCP over Streamable HTTP, in either era."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import httpx

from kimi_proxy.core.errors import UpstreamError, UpstreamUnreadable
from kimi_proxy.core.mcp import STATELESS_VERSIONS, enveloped
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.proxy.mcp import hello
from kimi_proxy.proxy.mcp.answers import with_id
from kimi_proxy.proxy.mcp.exchange import Exchange, Refused, header_value, stateless_headers, translated
from kimi_proxy.proxy.mcp.hello import Hello
from kimi_proxy.proxy.mcp.mirrors import Mirrors


@dataclass(frozen=True, slots=True)
class Session:
    """What we agreed on with a server; a stateless one has nothing to remember but its introduction."""

    hello: Hello
    id: str | None = None

    def headers(self, message: JsonObject) -> dict[str, str]:
        if self.hello.stateless:
            return stateless_headers(message)
        session = {} if self.id is None else {"mcp-session-id": self.id}
        return {"mcp-protocol-version": self.hello.version, **session}

    def is_lost(self, refusal: Refused) -> bool:
        """A server that restarted does not know our session: 404 by the book, 400 in many servers."""
        if self.id is None:
            return False
        return refusal.status == 404 or (refusal.status == 400 and b"session" in refusal.body.lower())


class Streamable:
    """One session shared by every client; ids are ours, so that two clients may use the same."""

    def __init__(self, server: str, url: str, start_timeout_s: float, headers: Mapping[str, str] | None = None) -> None:
        self._server = server
        self._start_timeout_s = start_timeout_s
        self._exchange = Exchange(server, url, headers)
        self._session: Session | None = None
        self._meeting = asyncio.Lock()
        self._ids = itertools.count(1)
        self._mirrors = Mirrors()

    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        session = await self._met()
        try:
            return await self._through(session, message, timeout_s)
        except Refused as e:
            if e.answer is not None and not session.is_lost(e):
                return with_id(e.answer, message["id"])
            if not session.is_lost(e):
                raise
        # It was refused unread, so that sending it again is safe.
        session = await self._met(instead_of=session)
        return await self._through(session, message, timeout_s)

    async def close(self) -> None:
        session = self._session
        if session is not None and session.id is not None:
            with suppress(httpx.HTTPError, TimeoutError):
                async with asyncio.timeout(1):
                    await self._exchange.delete(session.headers({}))
        await self._exchange.close()

    async def _through(self, session: Session, message: JsonObject, timeout_s: float) -> JsonObject | None:
        async def send(outgoing: JsonObject) -> JsonObject | None:
            mirrored = await self._mirrored(session, outgoing) if session.hello.stateless else {}
            answer = await self._sent(session, outgoing, mirrored)
            is_list = session.hello.stateless and outgoing.get("method") == "tools/list"
            return self._mirrors.learn(answer) if is_list and answer is not None else answer

        async with translated(self._server, timeout_s):
            return await hello.through(session.hello, message, send)

    async def _sent(self, session: Session, message: JsonObject, more: Mapping[str, str]) -> JsonObject | None:
        if "id" not in message:
            return (await self._exchange.send(message, session.headers(message))).message
        renamed = with_id(message, next(self._ids))
        reply = await self._exchange.send(renamed, {**session.headers(renamed), **more})
        return None if reply.message is None else with_id(reply.message, message["id"])

    async def _mirrored(self, session: Session, message: JsonObject) -> dict[str, str]:
        """The arguments of a call that go into headers; a tool that nobody listed yet is looked up first."""
        params = message.get("params")
        if message.get("method") != "tools/call" or not isinstance(params, Mapping):
            return {}
        if not self._mirrors.knows(str(params.get("name"))):
            listing = enveloped(hello.request("tools/list", {}))
            with suppress(Refused, UpstreamUnreadable):
                self._mirrors.learn(await self._sent(session, listing, {}) or {})
        return {name: header_value(value) for name, value in self._mirrors.headers(message).items()}

    async def _met(self, instead_of: Session | None = None) -> Session:
        async with self._meeting:
            if self._session is None or self._session is instead_of:
                self._session = None
                async with translated(self._server, self._start_timeout_s):
                    self._session = await self._meet()
            return self._session

    async def _meet(self) -> Session:
        """Ask the new way first: a server of the old era refuses at once, over HTTP none is silent."""
        return await self._discovered() or await self._initialized()

    async def _discovered(self) -> Session | None:
        with suppress(Refused, UpstreamUnreadable):
            for _ in range(2):
                found = await self._exchange.send(hello.DISCOVER, stateless_headers(hello.DISCOVER))
                match found.message:
                    case {"result": dict(about)} if STATELESS_VERSIONS[0] in _listed(about, "supportedVersions"):
                        return Session(Hello(True, about))
                    case {"error": {"code": -32022, "data": dict(about)}}:
                        # The version is one that it names: it may take a second request at its word.
                        if STATELESS_VERSIONS[0] not in _listed(about, "supported"):
                            return None
                    case _:
                        return None
        return None

    async def _initialized(self) -> Session:
        reply = await self._exchange.send(hello.INITIALIZE)
        match reply.message:
            case {"result": dict(about)}:
                session = Session(Hello(False, about), reply.headers.get("mcp-session-id"))
            case {"error": {"message": problem}}:
                raise UpstreamError(f"{self._server} refused to begin a session: {str(problem)[:200]}")
            case _:
                raise UpstreamUnreadable(f"{self._server} did not introduce itself")
        await self._exchange.send(hello.INITIALIZED, session.headers(hello.INITIALIZED))
        return session


def _listed(about: JsonObject, key: str) -> Sequence[JsonValue]:
    versions = about.get(key)
    return versions if isinstance(versions, list) else ()
