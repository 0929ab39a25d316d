"""Cuts over HTTP: from a conversation's long output to the page that shows it."""

from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.prune import Options, Question

TEXT = "\n".join(["def needle():", "    return 1", "", *(f"def other_{n}():\n    return {n}\n" for n in range(80))])
QUESTION = Question(TEXT, "where is the needle?", "code", Options(0.8, 5, 60_000, False, True))


async def test_a_cut_is_listed_shown_and_found(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        id = (await p.runtime.pruner.prune(LOCAL, QUESTION)).prune_id
        listed = (await p.http.get("/api/cuts", params={"limit": 5})).json()
        one = (await p.http.get(f"/api/cuts/{id}", params={"from": 1, "lines": 2})).json()
        found = (await p.http.get("/api/cuts/search", params={"q": "needle"})).json()

    assert [cut["id"] for cut in listed["cuts"]] == [id]
    assert [line["text"] for line in one["lines"]] == ["def needle():", "    return 1"]
    assert [hit["id"] for hit in found["hits"]] == [id]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/cuts?limit=0", 400),
        ("/api/cuts?limit=many", 400),
        ("/api/cuts?before=-1", 400),
        ("/api/cuts?page=2", 400),
        ("/api/cuts/prn_0000000000000000", 404),
        ("/api/cuts/%2e%2e", 404),
        ("/api/cuts/prn_0000000000000000?from=0", 400),
        ("/api/cuts/search", 400),
        ("/api/cuts/search?q=%20", 400),
    ],
)
async def test_what_makes_no_sense_is_refused(tmp_path: Path, path: str, status: int):
    async with proxy(tmp_path, "") as p:
        assert (await p.http.get(path)).status_code == status
