"""DeepInfra's reranker: one question, many lines, one score for each. Called only by users who opted in."""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import httpx
from pydantic import SecretStr

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError, PruneFailed, RerankFailed
from kimi_proxy.core.json import JsonValue

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
        body = json.encode({"code": sendable(code), "query": sendable(query)})
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
        found = json.fields(answer, (*_TEXTS, "error_msg"))
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


RERANKER_MAX_ANSWER_BYTES = 1024**2  # 512 scores are about 10 kB
MAX_GOAL_CHARS = 4_000
MAX_DOCUMENT_CHARS = 2_000  # a longer line is judged by its beginning
_RERANKER_IDLE_S = 120.0  # the caller's own limit is shorter
_NESTS = ("result", "results", "output", "data")


@dataclass(frozen=True, slots=True)
class Reranked:
    scores: list[float]
    latency_ms: int
    status: int


class Reranker:
    """Follows no redirect and heeds no proxy variable: the key and the lines go to the endpoint or nowhere."""

    def __init__(self, endpoint: str, api_key: SecretStr | None) -> None:
        self._endpoint = endpoint
        self._api_key = api_key
        self._client = httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=_RERANKER_IDLE_S)

    async def __call__(self, goal: str, documents: Sequence[str], within_s: float) -> Reranked:
        """One score per document, higher is better; RerankFailed says why there are none."""
        request = self._request(goal, documents)
        began = time.monotonic()
        try:
            async with asyncio.timeout(within_s):
                status, body = await self._send(request)
        except (httpx.HTTPError, TimeoutError, OSError) as e:
            # The message of an httpx error may hold the address, which may hold a secret.
            raise RerankFailed("deepinfra_http_error", f"no answer: {type(e).__name__}") from e
        if status != httpx.codes.OK:
            raise RerankFailed("deepinfra_http_error", f"the reranker answered HTTP {status}", status)
        scores = read_scores(body, len(documents), status)
        return Reranked(scores, round((time.monotonic() - began) * 1000), status)

    async def close(self) -> None:
        await self._client.aclose()

    def _request(self, goal: str, documents: Sequence[str]) -> httpx.Request:
        if self._api_key is None:
            raise RerankFailed("deepinfra_config_error", "DEEPINFRA_API_KEY is not set")
        question = {
            "queries": [_sendable(goal, MAX_GOAL_CHARS)],
            "documents": [_sendable(d, MAX_DOCUMENT_CHARS) for d in documents],
        }
        headers = {
            "authorization": f"Bearer {self._api_key.get_secret_value()}",
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "identity",
        }
        try:
            request = self._client.build_request("POST", self._endpoint, content=json.encode(question), headers=headers)
        except (httpx.InvalidURL, ValueError) as e:
            raise RerankFailed("deepinfra_config_error", "the endpoint or the key cannot be sent") from e
        if request.url.scheme not in ("http", "https"):
            raise RerankFailed("deepinfra_config_error", "the endpoint is not an http or https address")
        return request

    async def _send(self, request: httpx.Request) -> tuple[int, bytes]:
        response = await self._client.send(request, stream=True)
        try:
            body = bytearray()
            # Raw, because a small compressed answer may unfold to gigabytes; we asked for none.
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > RERANKER_MAX_ANSWER_BYTES:
                    break
            return response.status_code, bytes(body)
        finally:
            await response.aclose()


def read_scores(body: bytes, count: int, status: int) -> list[float]:
    """The scores in an answer of any accepted shape, in the order of the documents."""
    if len(body) > RERANKER_MAX_ANSWER_BYTES:
        raise RerankFailed("deepinfra_parse_error", "the answer is too large for a list of scores", status)
    try:
        scores = _scores(json.decode(body))
    except ParseError as e:
        raise RerankFailed("deepinfra_parse_error", "the answer is not JSON", status) from e
    if scores is None or len(scores) != count:
        raise RerankFailed("deepinfra_parse_error", f"the answer does not hold {count} scores", status)
    return scores


def _scores(answer: JsonValue) -> list[float] | None:
    found = _plain(answer)
    if found is None and isinstance(answer, dict):
        for name in _NESTS:
            if found is None and name in answer:
                found = _plain(answer[name])
    return found


def _plain(answer: JsonValue) -> list[float] | None:
    """`{"scores": [...]}`, a list of numbers, or a list of `{"index", "score"}`."""
    match answer:
        case {"scores": list(scores)}:
            return _numbers(scores)
        case list(items):
            return _numbers(items) or _indexed(items)
        case _:
            return None


def _numbers(items: Sequence[JsonValue]) -> list[float] | None:
    numbers = [number for number in map(_number, items) if number is not None]
    return numbers if len(numbers) == len(items) else None


def _indexed(items: Sequence[JsonValue]) -> list[float] | None:
    scores: dict[int, float] = {}
    for item in items:
        match item:
            case {"index": int(index), "score": score} if (number := _number(score)) is not None:
                scores[index] = number
            case _:
                return None
    complete = sorted(scores) == list(range(len(items)))
    return [scores[i] for i in range(len(items))] if complete else None


def _number(item: JsonValue) -> float | None:
    if isinstance(item, bool) or not isinstance(item, int | float):
        return None
    try:
        number = float(item)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def _sendable(text: str, max_chars: int) -> str:
    """The beginning of `text`; lone surrogates, which no JSON reader has to accept, become question marks."""
    return text[:max_chars].encode("utf-8", "replace").decode()
