"""A number that no provider should send, or that another program wrote into the store, stops no page and no viewer."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.support.api.team import ask, team
from tests.support.api.watching import completion, listed, watching, world
from tests.support.evil import Heard, Line, http

from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.store.sqlite.store import store_path

ABSURD = "500000000000"  # the year 17,814
QUOTA = ("anthropic-ratelimit-unified-5h-utilization: 0.42", f"anthropic-ratelimit-unified-5h-reset: {ABSURD}")


async def answer_with_an_absurd_reset(heard: Heard, line: Line) -> None:
    await line.send(http(completion(), "200 OK", "application/json", *QUOTA))


async def test_a_reset_in_the_far_future_is_shown_as_unknown_and_stops_no_viewer(tmp_path: Path):
    async with world(tmp_path, script=answer_with_an_absurd_reset) as w, watching(w.proxy.port) as watcher:
        await watcher.until("init")
        await w.ask("hi", name="mine")
        (live,) = await watcher.until("metric_updated")
        listed = await w.get("/api/sessions/mine/metrics")
        async with watching(w.proxy.port) as late:
            await late.until("init")

    quota = [{"window": "5h", "used": 0.42, "resets_at": None}]
    (noted,) = listed["metrics"]  # type: ignore[misc, union-attr]
    assert noted["quota"] == quota  # type: ignore[index, call-overload]
    assert live["metric"] == noted


DAMAGE: tuple[tuple[str, str, object], ...] = (
    ("metrics", "quota", json.dumps([["5h", 0.42, 500_000_000_000.0]])),
    ("metrics", "quota", json.dumps([["5h", "much", "never"]])),
    ("metrics", "quota", json.dumps([["5h"]])),
    ("metrics", "quota", json.dumps(["5h", 7])),
    ("metrics", "quota", json.dumps({"5h": 0.42})),
    ("metrics", "quota", '[["5h", 1e400, 1e400]]'),
    ("metrics", "quota", "not JSON"),
    ("metrics", "max_context", 0),
    ("metrics", "max_context", -1),
    ("metrics", "at", 1e300),
    ("metrics", "at", -1e300),
    ("metrics", "at", 9e999),
    ("sessions", "created", 1e300),
    ("sessions", "last_used", -9e999),
    ("sessions", "layout", json.dumps({"distribution": 7})),
    ("sessions", "memory_context", json.dumps([1, 2])),
)


async def test_a_value_that_another_program_wrote_into_the_store_stops_no_page_and_no_viewer(tmp_path: Path):
    names = [f"session-{at}" for at in range(len(DAMAGE))]
    async with world(tmp_path) as w:
        ids = {}
        for name in names:
            await w.ask("hi", name=name)
        for each in await w.sessions(len(DAMAGE)):
            ids[str(each["name"])] = str(each["id"])
    with closing(sqlite3.connect(store_path(tmp_path))) as connection:
        for name, (table, column, value) in zip(names, DAMAGE, strict=True):
            whose = {"sessions": "id", "metrics": "session_id"}[table]
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE {whose} = ?", (value, ids[name]))
        connection.commit()

    async with world(tmp_path) as w, watching(w.proxy.port) as watcher:
        paths = [f"/api/sessions/{id}{path}" for id in ids.values() for path in ("", "/metrics", "/memory")]
        paths += [f"/api/{path}" for path in ("sessions", "savings", "export/json", "memory/stats")]
        paths += [f"/api/session/{id}/health" for id in ids.values()]
        answers = {path: (await w.proxy.http.get(path)).status_code for path in paths}
        (init,) = await watcher.until("init")

    assert {path: status for path, status in answers.items() if status != 200} == {}
    assert len(init["metrics"]) == len(DAMAGE)  # type: ignore[arg-type]


ROWS = {
    "decision": {"shown": b"no frame", "preview": b"\xff\xfe", "session": b"\xff\xfe"},
    "fact": {"frame": b"no frame", "session": b"\xff\xfe"},
    "compression_log": {"frame": b"no frame"},
    "record": {"about": b"\xff\xfe"},
    "text": {"frame": b"no frame"},
    "project_memory": {"content": b"no JSON"},
}


# One that another program could have written: the conversations here are too short to be compressed.
COMPRESSION = """INSERT INTO compression_log
  (session_id, timestamp, original_tokens, compressed_tokens, compression_ratio, handle, cut, kept, fingerprint, hash,
   frame, original, summary_by, kind, automatic, scope)
  SELECT id, 1.0, 9, 1, 0.5, 'cmp_1', 1, '', x'00', x'00', x'00', '', 'm', 'compression', 0, scope
  FROM sessions LIMIT 1"""


async def exported(client: httpx.AsyncClient) -> list[JsonObject]:
    return [json.loads(line) for line in (await client.get("/api/me/export")).text.splitlines()]


@pytest.mark.parametrize("table", ROWS)
async def test_a_damaged_row_ends_neither_a_list_nor_an_export(tmp_path: Path, table: str):
    async with team(tmp_path, "[sanitizer]\nbudget_ms = 60000\n") as t, t.person("ada") as ada:
        for number in range(2):
            assert (await ask(ada, f"session-{number}")).status_code == 200
        assert (await ada.post("/api/memory/save", json={"content": "x"})).status_code == 200
        await listed(ada, "/api/sessions", "sessions", 2)
        whole = Counter(line["kind"] for line in await exported(ada))
        with closing(sqlite3.connect(store_path(tmp_path / "0"), timeout=60)) as connection:
            connection.execute(COMPRESSION)
            first = f"rowid = (SELECT min(rowid) FROM {table})"
            for column, value in ROWS[table].items():
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {first}", (value,))
            connection.commit()
        cuts = (await ada.get("/api/cuts")).json()["cuts"]
        looked_at = {(await ada.get(f"/api/cuts/{each['id']}")).status_code for each in cuts}
        kinds = Counter(line["kind"] for line in await exported(ada))
        memory = (await ada.get("/api/memory/load")).json()

    assert looked_at == ({503} if table == "text" else {200})  # both sessions have the same text
    lost = {"project_memory"} if table == "project_memory" else set()
    assert {kind for kind, count in whole.items() if kinds[kind] < count} == lost
    assert "damaged" in memory["trouble"] if lost else memory["content"] == "x"
