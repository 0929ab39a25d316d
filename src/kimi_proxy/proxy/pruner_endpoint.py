"""A pruner behind an address: asked in swe-pruner's words on `/prune`, in JSON-RPC anywhere else."""

from urllib.parse import urlsplit, urlunsplit

import httpx

from kimi_proxy.core import jsontext, lines, markers
from kimi_proxy.core.errors import ParseError, PruneFailed
from kimi_proxy.core.prune import Question
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.proxy.swe_pruner import sendable

PATIENCE_S = 120.0
MOST_THRESHOLD = 0.95


class PrunerEndpoint:
    """Follows no redirect and heeds no proxy variable: the texts go to the address given or nowhere."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise PruneFailed("http_error", f"{address} is not an http or https address")
        self._address = address if parts.path.strip("/") else urlunsplit(parts._replace(path="/rpc"))
        self._is_swe = urlsplit(self._address).path.rstrip("/").endswith("/prune")
        self._client = httpx.Client(trust_env=False, follow_redirects=False, timeout=PATIENCE_S)

    def prune(self, question: Question) -> str:
        """The text as the server would hand it to a model."""
        asked = _swe_request(question) if self._is_swe else _rpc_request(question)
        answer = self._post(asked)
        return _swe_text(answer) if self._is_swe else _rpc_text(answer)

    def close(self) -> None:
        self._client.close()

    def _post(self, asked: JsonObject) -> JsonValue:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        try:
            reply = self._client.post(self._address, content=jsontext.encode(asked), headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            raise PruneFailed("http_error", f"{self._address} does not answer: {type(e).__name__}") from e
        if reply.status_code != httpx.codes.OK:
            raise PruneFailed("http_error", f"{self._address} answered HTTP {reply.status_code}")
        try:
            return jsontext.decode(reply.content)
        except ParseError as e:
            raise PruneFailed("invalid_response", f"{self._address} did not answer with JSON") from e


def kept_rows(original: str, pruned: str) -> list[bool]:
    """Which lines of `original` are in `pruned`: told by markers where there are any, else found in order."""
    before, after = lines.split(original), lines.split(pruned)
    keep = [False] * len(before)
    row = 0
    for line in after:
        marker = markers.read(line)
        if marker is not None and marker.start == row + 1:
            row = marker.end
            continue
        at = next((i for i in range(row, len(before)) if before[i] == line), None)
        if at is not None:
            keep[at] = True
            row = at + 1
    return keep


def _swe_request(question: Question) -> JsonObject:
    """A threshold is how relevant a line must be: the closest thing to the share that may go."""
    threshold = min(question.options.max_prune_ratio / 1.5, MOST_THRESHOLD)
    return {"code": sendable(question.text), "query": sendable(question.goal), "threshold": threshold}


def _swe_text(answer: JsonValue) -> str:
    match answer:
        case {"pruned_code": str(text)} | {"content": str(text)} | {"text": str(text)}:
            return text
    raise PruneFailed("invalid_response", "the pruner's answer holds no text")


def _rpc_request(question: Question) -> JsonObject:
    options = question.options
    arguments: JsonObject = {
        "text": sendable(question.text),
        "goal_hint": sendable(question.goal),
        "source_type": question.source_type,
        "options": {
            "max_prune_ratio": options.max_prune_ratio,
            "min_keep_lines": options.min_keep_lines,
            "timeout_ms": options.timeout_ms,
            "annotate_lines": False,
            "include_markers": True,
        },
    }
    params: JsonObject = {"name": "prune_text", "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def _rpc_text(answer: JsonValue) -> str:
    match answer:
        case {"result": {"structuredContent": {"pruned_text": str(text)}}}:
            return text
        case {"result": {"content": [{"text": str(told)}, *_]}}:
            try:
                found = jsontext.members(told.encode("utf-8", "surrogatepass"), ("pruned_text",)).get("pruned_text")
            except ParseError:
                found = None
            if isinstance(found, str):
                return found
        case {"error": {"message": str(problem)}}:
            raise PruneFailed("invalid_response", f"the pruner refuses: {problem[:200]}")
    raise PruneFailed("invalid_response", "the pruner's answer holds no pruned_text")
