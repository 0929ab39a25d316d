"""The playground: the answer of `prune_text`, and no trace of it."""

from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy

from kimi_proxy.core.caller import LOCAL

TEXT = "\n".join(["def needle():", "    return 1", "", *(f"def other_{n}():\n    return {n}\n" for n in range(80))])
OPTIONS = {
    "max_prune_ratio": 0.7,
    "min_keep_lines": 5,
    "timeout_ms": 60_000,
    "annotate_lines": False,
    "include_markers": True,
}
ASKED = {"text": TEXT, "goal_hint": "where is the needle?", "source_type": "code", "options": OPTIONS}


async def test_it_answers_as_prune_text_would_and_keeps_nothing(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        tried = (await p.http.post("/api/playground/prune", json={**ASKED, "explain": True})).json()
        kept = (await p.runtime.store.usage()).originals
        real = (await p.runtime.tools["prune_text"].call(LOCAL, ASKED)).structured

    assert real is not None
    assert tried["prune_id"] is None
    assert kept == 0

    def spans(answer: dict[str, object]) -> list[tuple[object, object, object]]:
        found = answer["annotations"]
        assert isinstance(found, list)
        return [(a["original_start_line"], a["original_end_line"], a["reason"]) for a in found]

    assert spans(tried) == spans(dict(real)) != []
    assert len(tried["lines"]) == TEXT.count("\n") + 1
    assert all(line["why"] for line in tried["lines"])


async def test_lines_are_explained_only_if_that_is_asked(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        assert (await p.http.post("/api/playground/prune", json=ASKED)).json()["lines"] == []


async def test_a_text_that_is_too_long_comes_back_whole(tmp_path: Path):
    async with proxy(tmp_path, "[mcp_pruner]\nmax_input_chars = 100\n") as p:
        tried = (await p.http.post("/api/playground/prune", json=ASKED)).json()

    assert (tried["pruned_text"], tried["warnings"]) == (TEXT, ["input_too_large"])


@pytest.mark.parametrize("body", [[], {}, {**ASKED, "source_type": "poem"}, {**ASKED, "more": 1}])
async def test_what_is_no_question_is_refused(tmp_path: Path, body: object):
    async with proxy(tmp_path, "") as p:
        assert (await p.http.post("/api/playground/prune", json=body)).status_code == 400
