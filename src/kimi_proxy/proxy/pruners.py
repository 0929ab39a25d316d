"""Pruners elsewhere: a swe-pruner server, and DeepInfra's reranker, which scores many lines for one question."""

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError, PruneFailed, RerankFailed
from kimi_proxy.core.json import JsonValue
from kimi_proxy.proxy import http

MAX_ANSWER_BYTES = 128 * 1024**2  # it may hold the score of every token
MAX_SCORES_BYTES = 1024**2  # 512 scores are about 10 kB
MAX_GOAL_CHARS = 4_000
MAX_DOCUMENT_CHARS = 2_000  # a longer line is judged by its beginning

_TEXTS = ("pruned_code", "content", "text")
_NESTS = ("result", "results", "output", "data")
# Uncompressed, because a small compressed answer may be a decompression bomb.
_HEADERS = {"content-type": "application/json", "accept": "application/json", "accept-encoding": "identity"}


class SwePruner:
    """A swe-pruner server. The text goes to the endpoint or nowhere: no redirect is followed, no proxy is used."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        # The endpoint as given, with the contract's path if it names only a server.
        self._endpoint = endpoint if parts.path.strip("/") else urlunsplit(parts._replace(path="/prune"))
        self._client = http.client()

    async def prune(self, code: str, query: str, within_s: float) -> str:
        """Return the server's pruned `code`; raise PruneFailed with the reason if there is none."""
        body = json.encode({"code": sendable(code), "query": sendable(query)})
        try:
            async with (
                asyncio.timeout(within_s),
                http.open_response(self._client, "POST", self._endpoint, body, _HEADERS) as response,
            ):
                answer = await http.read(response, MAX_ANSWER_BYTES)
        except TimeoutError as e:
            raise PruneFailed("timeout", f"no response within {within_s * 1000:.0f} ms") from e
        except http.FAILURES as e:
            # The message of a client's error may hold the address, which may hold a secret.
            raise PruneFailed("http_error", f"no response: {type(e).__name__}") from e
        if answer is None:
            raise PruneFailed("invalid_response", "the pruner's response is too large")
        if not 200 <= response.status < 300:
            raise PruneFailed("http_error", f"the pruner answered HTTP {response.status}")
        return read_text(answer)

    async def close(self) -> None:
        await self._client.close()


def read_text(answer: bytes) -> str:
    """Return the first string among the names that servers give it."""
    try:
        found = json.fields(answer, (*_TEXTS, "error_msg"))
    except ParseError as e:
        raise PruneFailed("invalid_response", "the pruner's response is not a JSON object") from e
    if isinstance(found.get("error_msg"), str) and found["error_msg"]:
        raise PruneFailed("invalid_response", "the pruner reported an error")
    text = next((value for name in _TEXTS if isinstance(value := found.get(name), str)), None)
    if not text:
        raise PruneFailed("invalid_response", "the pruner's response contains no text")
    return text


def sendable(text: str) -> str:
    """Return `text` with question marks for lone surrogates, which no JSON reader has to accept."""
    return text.encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class Reranked:
    scores: list[float]
    latency_ms: int
    status: int


class Reranker:
    """DeepInfra's reranker, called only for users who opted in.

    The key and the lines go to the endpoint or nowhere: no redirect is followed, no proxy is used.
    """

    def __init__(self, endpoint: str, api_key: SecretStr | None) -> None:
        self._endpoint = endpoint
        self._api_key = api_key
        self._client = http.client()

    async def __call__(self, goal: str, documents: Sequence[str], within_s: float) -> Reranked:
        """Return one score per document, higher is better; raise RerankFailed with the reason if there are none."""
        headers = self._headers()
        lines = [sendable(document[:MAX_DOCUMENT_CHARS]) for document in documents]
        body = json.encode({"queries": [sendable(goal[:MAX_GOAL_CHARS])], "documents": lines})
        began = time.monotonic()
        try:
            async with (
                asyncio.timeout(within_s),
                http.open_response(self._client, "POST", self._endpoint, body, headers) as response,
            ):
                answer = await http.read(response, MAX_SCORES_BYTES)
        except http.FAILURES as e:
            # The message of a client's error may hold the address, which may hold a secret.
            raise RerankFailed("deepinfra_http_error", f"no response: {type(e).__name__}") from e
        status = response.status
        if status != 200:
            raise RerankFailed("deepinfra_http_error", f"the reranker answered HTTP {status}", status)
        if answer is None:
            raise RerankFailed("deepinfra_parse_error", "the response is too large for a list of scores", status)
        scores = read_scores(answer, len(documents), status)
        return Reranked(scores, round((time.monotonic() - began) * 1000), status)

    async def close(self) -> None:
        await self._client.close()

    def _headers(self) -> dict[str, str]:
        if self._api_key is None:
            raise RerankFailed("deepinfra_config_error", "DEEPINFRA_API_KEY is not set")
        key = self._api_key.get_secret_value()
        address = urlsplit(self._endpoint)
        if address.scheme not in ("http", "https") or not address.netloc:
            raise RerankFailed("deepinfra_config_error", "the endpoint is not an http or https address")
        if not (key.isascii() and key.isprintable()):
            raise RerankFailed("deepinfra_config_error", "the key cannot be sent in a header")
        return {**_HEADERS, "authorization": f"Bearer {key}"}


def read_scores(body: bytes, count: int, status: int) -> list[float]:
    """Return the scores in an answer of any accepted shape, in the order of the documents."""
    try:
        scores = _scores(json.decode(body))
    except ParseError as e:
        raise RerankFailed("deepinfra_parse_error", "the response is not JSON", status) from e
    if scores is None or len(scores) != count:
        raise RerankFailed("deepinfra_parse_error", f"the response does not contain {count} scores", status)
    return scores


def _scores(answer: JsonValue) -> list[float] | None:
    nested = [answer[name] for name in _NESTS if name in answer] if isinstance(answer, dict) else []
    return next((found for value in (answer, *nested) if (found := _plain(value)) is not None), None)


def _plain(answer: JsonValue) -> list[float] | None:
    """`{"scores": [...]}`, a list of numbers, or a list of `{"index", "score"}`."""
    match answer:
        case {"scores": list(scores)}:
            return _numbers(scores)
        case list(items):
            return _numbers(items) or _scores_by_index(items)
        case _:
            return None


def _numbers(items: Sequence[JsonValue]) -> list[float] | None:
    numbers = [number for number in map(_number, items) if number is not None]
    return numbers if len(numbers) == len(items) else None


def _scores_by_index(items: Sequence[JsonValue]) -> list[float] | None:
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
