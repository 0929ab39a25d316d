"""A swe-pruner server: it is sent a text and a question, and answers with what it would keep."""

import asyncio
from urllib.parse import urlsplit, urlunsplit

import httpx

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError, PruneFailed

MAX_ANSWER_BYTES = 128 * 1024**2  # it may tell the score of every token
_IDLE_S = 600.0  # the caller's own limit is shorter
_TEXTS = ("pruned_code", "content", "text")


class SwePruner:
    """Follows no redirect and heeds no proxy variable: the text goes to the endpoint or nowhere."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = _prune_address(endpoint)
        self._client = httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=_IDLE_S)

    async def prune(self, code: str, query: str, within_s: float) -> str:
        """What the server keeps of `code`; PruneFailed says why there is nothing."""
        body = jsontext.encode({"code": sendable(code), "query": sendable(query)})
        try:
            async with asyncio.timeout(within_s):
                status, answer = await self._post(body)
        except (TimeoutError, httpx.TimeoutException) as e:
            raise PruneFailed("timeout", f"no answer within {within_s * 1000:.0f} ms") from e
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as e:
            # The message of an httpx error may hold the address, which may hold a secret.
            raise PruneFailed("http_error", f"no answer: {type(e).__name__}") from e
        if not 200 <= status < 300:
            raise PruneFailed("http_error", f"the pruner answered HTTP {status}")
        return read_text(answer)

    async def close(self) -> None:
        await self._client.aclose()

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        headers = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}
        request = self._client.build_request("POST", self._endpoint, content=body, headers=headers)
        response = await self._client.send(request, stream=True)
        try:
            answer = bytearray()
            # Raw, because a small compressed answer may unfold to gigabytes; we asked for none.
            async for chunk in response.aiter_raw():
                answer += chunk
                if len(answer) > MAX_ANSWER_BYTES:
                    raise PruneFailed("invalid_response", "the pruner's answer is too large")
            return response.status_code, bytes(answer)
        finally:
            await response.aclose()


def read_text(answer: bytes) -> str:
    """The first string among the names that servers give it."""
    try:
        found = jsontext.members(answer, (*_TEXTS, "error_msg"))
    except ParseError as e:
        raise PruneFailed("invalid_response", "the pruner's answer is not a JSON object") from e
    if isinstance(found.get("error_msg"), str) and found["error_msg"]:
        raise PruneFailed("invalid_response", "the pruner reports an error of its own")
    text = next((value for name in _TEXTS if isinstance(value := found.get(name), str)), None)
    if not text:
        raise PruneFailed("invalid_response", "the pruner's answer holds no text")
    return text


def sendable(text: str) -> str:
    """`text` with question marks for lone surrogates, which no JSON reader has to accept."""
    return text.encode("utf-8", "replace").decode()


def _prune_address(endpoint: str) -> str:
    """The endpoint as given, with the contract's path if it names only a server."""
    parts = urlsplit(endpoint)
    return endpoint if parts.path.strip("/") else urlunsplit(parts._replace(path="/prune"))
