import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from evaluation.mining import PrunerEndpoint, kept_rows
from kimi_proxy.core.errors import PruneFailed
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.prune import Options, Question

QUESTION = Question("one\ntwo\nthree", "what?", "docs", Options(0.6, 1, 1000, False, True))


@contextmanager
def server(answer: Callable[[JsonObject], JsonValue], status: int = 200) -> Iterator[tuple[str, list[JsonObject]]]:
    """Answers every POST with what `answer` makes of it; its address, and what it was asked."""
    seen: list[JsonObject] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(answer(seen[-1])).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{http.server_port}", seen
        http.shutdown()


def asked(address: str) -> str:
    return PrunerEndpoint(address).prune(QUESTION)


def test_a_prune_address_is_asked_in_swe_pruner_s_words():
    with server(lambda body: {"pruned_code": "two"}) as (address, seen):
        assert asked(f"{address}/prune") == "two"
    assert seen == [{"code": "one\ntwo\nthree", "query": "what?", "threshold": pytest.approx(0.4)}]


@pytest.mark.parametrize("path", ["", "/rpc", "/mcp"])
def test_any_other_address_is_asked_for_the_tool_over_json_rpc(path: str):
    told = {"content": [{"type": "text", "text": json.dumps({"pruned_text": "two", "stats": {}})}]}
    with server(lambda body: {"jsonrpc": "2.0", "id": body["id"], "result": told}) as (address, seen):
        assert asked(address + path) == "two"
    params = seen[0]["params"]
    assert isinstance(params, dict)
    assert params["name"] == "prune_text"


@pytest.mark.parametrize(
    "answer",
    [[], {}, {"result": {"content": [{"text": "not json"}]}}, {"error": {"message": "no such tool"}}, "text"],
)
def test_an_answer_without_a_text_is_refused(answer: JsonValue):
    with server(lambda body: answer) as (address, _), pytest.raises(PruneFailed):
        asked(address)


def test_a_server_that_fails_and_one_that_is_not_there_are_named():
    with server(lambda body: {}, status=500) as (address, _), pytest.raises(PruneFailed, match="HTTP 500"):
        asked(f"{address}/prune")
    with pytest.raises(PruneFailed, match="does not answer"):
        asked("http://127.0.0.1:1/prune")
    with pytest.raises(PruneFailed, match="not an http"):
        PrunerEndpoint("file:///etc/passwd")


def test_kept_lines_are_told_by_markers_else_found_in_their_order():
    original = "a\n}\nb\n}\nc"
    marker = "⟦PRUNÉ: prune_id=prn_0123456789abcdef lignes 2-3 (2) raison=x⟧"

    assert kept_rows(original, f"a\n{marker}\n}}\nc") == [True, False, False, True, True]
    assert kept_rows(original, "b\n(filtered 1 line)\nc") == [False, False, True, False, True]
    assert kept_rows(original, original) == [True] * 5
