"""Asks a provider, and hands over its answer piece by piece as it comes."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from pydantic import SecretStr
from yarl import URL

from kimi_proxy.core import json
from kimi_proxy.core.config.providers import CLOUDS, CODE_ASSIST, ENVIRONMENT, Provider, may_pass_key
from kimi_proxy.core.errors import (
    ParseError,
    UpstreamDisconnected,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
    UpstreamUnreadable,
)
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.timing import Deadline, measure_time
from kimi_proxy.proxy import headers, http
from kimi_proxy.proxy.headers import UpstreamRequest

KEEP_ALIVE_S = 15.0  # shorter than servers keep a connection, so that it is rarely closed under our hands
LIST_S = 20.0
MAX_LIST_BYTES = 16 * 1024**2
SLICE_BYTES = 16 * 1024
SLICES_PER_TURN = 4  # of all answers, in one turn of the event loop: a few milliseconds of work


class FairTurns:
    """Makes answers that arrive faster than they can be relayed take turns, in the order in which they ask.

    At most `per_turn` of them go on in one turn of the event loop, so that other requests are served in between.
    """

    def __init__(self, per_turn: int = SLICES_PER_TURN) -> None:
        self._per_turn = per_turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._grant, loop)
        await turn

    def _grant(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(self._per_turn, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():  # a client that hung up has cancelled its own
                turn.set_result(None)
        if self._waiting:
            loop.call_soon(self._grant, loop)


class ProviderReply:
    """An answer whose status and headers are known, and whose body is on its way."""

    def __init__(
        self, response: aiohttp.ClientResponse, name: str, provider: Provider, asked_at: float, turns: FairTurns
    ) -> None:
        self._response = response
        self._turns = turns
        self._name = name
        self._idle_s = provider.idle_timeout_s
        self._first_by = asked_at + provider.first_token_timeout_s
        self._all_by = asked_at + provider.total_timeout_s
        self.status = response.status
        self.headers = headers.to_client(response.raw_headers)
        self.media_type = response.content_type
        encoding = headers.value_of(self.headers, b"content-encoding").decode("latin-1").strip().lower()
        self.encoding = "" if encoding == "identity" else encoding

    @property
    def is_delimited(self) -> bool:
        """Return whether the answer states its length; otherwise it ends with the connection, for whatever reason."""
        said = self._response.headers
        return "Content-Length" in said or "chunked" in said.get("Transfer-Encoding", "").lower()

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes; UpstreamTimeout if nothing does for too long, UpstreamDisconnected if it breaks off."""
        content = self._response.content
        now = asyncio.get_running_loop().time
        is_first = True
        patience = Deadline(min(self._first_by, self._all_by), self._give_up, http.ConnectionCheck(self._response))
        try:
            while piece := await content.read(SLICE_BYTES):
                # While the client takes its time, the provider is not to blame.
                patience.at = self._all_by
                is_first = False
                yield piece
                if len(piece) == SLICE_BYTES:
                    await self._turns.take()
                patience.at = min(now() + self._idle_s, self._all_by)
        except TimeoutError as e:
            what = "sent no first token in time" if is_first else "fell silent, or took too long"
            raise UpstreamTimeout(f"{self._name} {what}") from e
        except (aiohttp.ClientError, OSError) as e:
            raise UpstreamDisconnected(f"{self._name} broke off in the middle of its response") from e
        finally:
            patience.stop()

    def _give_up(self) -> None:
        self._response.content.set_exception(TimeoutError())


class Upstreams:
    """The providers that may be asked. Follows no redirect, keeps no cookie, heeds no variable unasked."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        keys: Mapping[str, SecretStr],
        token: SecretStr | None = None,
        on_demand: Collection[str] = (),
    ) -> None:
        self._providers = {name: each for name, each in providers.items() if each.enabled or name in on_demand}
        self._on_demand = frozenset(on_demand)
        self._keys = {name: key.get_secret_value().encode() for name, key in keys.items()}
        self._token = token.get_secret_value() if token else None
        self._proxies = {name: _proxy_of(provider) for name, provider in self._providers.items()}
        self._usual = http.client(aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S), note_reuse=True)
        self._fresh = http.client(aiohttp.TCPConnector(limit=0, force_close=True))
        self._turns = FairTurns()

    async def close(self) -> None:
        await self._usual.close()
        await self._fresh.close()

    @asynccontextmanager
    async def send(self, name: str, question: UpstreamRequest) -> AsyncIterator[ProviderReply]:
        """Ask the provider of that name; its answer is open as long as the block runs."""
        provider = self._providers[name]
        asked_at = asyncio.get_running_loop().time()
        with measure_time("upstream"):
            response = await self._open(name, provider, question)
        try:
            if 300 <= response.status < 400 or response.status < 200:
                raise UpstreamUnreadable(f"{name} answered HTTP {response.status}: check its base_url")
            yield ProviderReply(response, name, provider, asked_at, self._turns)
        finally:
            response.close()

    async def _open(self, name: str, provider: Provider, question: UpstreamRequest) -> aiohttp.ClientResponse:
        try:
            async with asyncio.timeout(provider.first_token_timeout_s):
                sending = http.Sending()
                try:
                    return await self._ask(self._usual, name, provider, question, sending)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as e:
                    # A connection from the pool may die in the moment it is used. One that closes without an answer
                    # although it is new has perhaps brought the request to the provider, who charges for it.
                    if isinstance(e, aiohttp.ClientConnectorError) or not sending.is_reused:
                        raise
                    return await self._ask(self._fresh, name, provider, question)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as e:
            raise _translate_error(name, provider, e) from e

    async def _ask(
        self,
        client: aiohttp.ClientSession,
        name: str,
        provider: Provider,
        question: UpstreamRequest,
        sending: http.Sending | None = None,
    ) -> aiohttp.ClientResponse:
        url = _url(provider, question)
        sent = self._headers(name, question)
        if question.sign is not None and not any(key == "authorization" for key, _ in sent):
            sent += await question.sign(question.method, url, question.body)
        return await client.request(
            question.method,
            URL(url, encoded=True) if question.address else url,  # exactly as signed
            data=http.payload(question.body or None),
            headers=sent,
            allow_redirects=False,
            proxy=self._proxies[name],
            timeout=aiohttp.ClientTimeout(total=None, connect=provider.connect_timeout_s),
            trace_request_ctx=sending,
        )

    async def model_list(self, name: str, question: UpstreamRequest) -> JsonValue:
        """Return the provider's own list of models; None if it has none that can be read."""
        provider = self._providers[name]
        base_url = provider.base_url.get_secret_value()
        url = f"{base_url}{question.wire.format.models_path(base_url)}"
        timeout = aiohttp.ClientTimeout(total=LIST_S, connect=provider.connect_timeout_s)
        sent = self._headers(name, question)
        try:
            async with self._usual.get(
                url, headers=sent, allow_redirects=False, proxy=self._proxies[name], timeout=timeout
            ) as response:
                body = await response.content.read(MAX_LIST_BYTES)
                return json.decode(body) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, ParseError):
            return None

    def _key(self, name: str, question: UpstreamRequest) -> bytes | None:
        """Return our key; None if the client's own is sent, or there is none."""
        is_own = headers.is_own_key(name, question.headers, self._token, self._on_demand)
        return None if is_own else self._keys.get(name)

    def _headers(self, name: str, question: UpstreamRequest) -> list[tuple[str, str]]:
        provider = self._providers[name]
        is_on_demand = name in self._on_demand

        def may_pass(credential: str) -> bool:
            return may_pass_key(name, provider, credential, is_on_demand)

        return _headers(provider, question, self._key(name, question), self._token, may_pass)


def _proxy_of(provider: Provider) -> str | None:
    if provider.proxy != ENVIRONMENT:
        return provider.proxy.get_secret_value() if provider.proxy else None
    address = urlsplit(provider.base_url.get_secret_value())
    return None if proxy_bypass(address.hostname or "") else getproxies().get(address.scheme)


def _url(provider: Provider, question: UpstreamRequest) -> str:
    base_url = provider.base_url.get_secret_value()
    path = question.address or question.wire.format.upstream_path(base_url, question.path)
    query = f"?{question.query}" if question.query else ""
    return f"{question.wire.format.base_url(base_url)}{path}{query}"


def _headers(
    provider: Provider,
    question: UpstreamRequest,
    key: bytes | None,
    token: str | None,
    may_pass: Callable[[str], bool],
) -> list[tuple[str, str]]:
    wire_format = question.wire.format
    key_header = None if key is None else _key_header(provider, question, key)
    passed = [
        (name.decode("latin-1"), value.decode("utf-8", "replace"))
        for name, value in headers.to_provider(question.headers, key_header, token, may_pass)
    ]
    given = {name for name, _ in passed}
    defaults = [(name, value) for name, value in wire_format.default_headers if name not in given]
    return [*passed, *defaults, ("accept-encoding", "identity")]


def _key_header(provider: Provider, question: UpstreamRequest, key: bytes) -> headers.Header:
    is_bearer = provider.type in (*CLOUDS, CODE_ASSIST)
    return (b"authorization", b"Bearer " + key) if is_bearer else question.wire.format.key_header(key)


def _translate_error(name: str, provider: Provider, error: Exception) -> UpstreamError:
    """The messages of the client's errors may hold addresses; ours name the provider and what to look at."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return UpstreamTimeout(f"{name} could not be reached within {provider.connect_timeout_s:g} s")
        case TimeoutError():
            return UpstreamTimeout(f"{name} did not begin to answer within {provider.first_token_timeout_s:g} s")
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return UpstreamUnreachable(f"{name} offers no TLS connection that can be trusted: check its base_url")
        case aiohttp.ClientConnectorDNSError():
            return UpstreamUnreachable(f"cannot reach {name} (offline?): check the network, and its base_url")
        case aiohttp.ClientConnectorError():
            return UpstreamUnreachable(f"{name} refuses connections: is it running, and is its base_url right?")
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError() | OSError():
            return UpstreamUnreachable(f"{name} closed the connection without an answer")
        case _:
            return UpstreamUnreadable(f"{name} did not answer in HTTP: {type(error).__name__}")
