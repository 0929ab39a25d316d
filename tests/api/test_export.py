"""What requests came to, as a file."""

import csv
import io
from dataclasses import replace
from pathlib import Path

from tests.support.api.watching import World, world
from tests.support.services.store.making import a_metric, a_session

from kimi_proxy.api.sessions import COLUMNS, FORMULA
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.services import serialize
from kimi_proxy.services.store.sqlite.store import SqliteStore


def as_cell(value: JsonValue) -> str:
    """As a spreadsheet would show it."""
    return "" if value is None else " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


async def csv_rows(w: World, query: str = "") -> list[dict[str, str]]:
    answer = await w.proxy.http.get(f"/api/export/csv{query}")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="kimi-proxy-metrics.csv"'
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))


def ledger_of(w: World) -> SqliteStore:
    store = w.proxy.runtime.store
    assert isinstance(store, SqliteStore)
    return store


async def test_both_formats_hold_every_request_as_it_is(tmp_path: Path):
    metrics = [replace(a_metric(f"req_{n:05}", f"ses_{n % 3}", at=float(n)), cost_usd=n / 7) for n in range(1_203)]
    bare = replace(a_metric("req_bare"), input_tokens=None, cost_usd=None, max_context=None, reasons=())
    async with world(tmp_path) as w:
        await ledger_of(w).sessions.write([a_session(f"ses_{n}") for n in range(3)], [*metrics, bare])
        exported = (await w.get("/api/export/json"))["metrics"]
        rows = await csv_rows(w)
    expected = [serialize.metric(metric) for metric in (*metrics, bare)]
    assert exported == [{**each, "reasons": list(each["reasons"])} for each in expected]  # type: ignore[arg-type]
    assert rows == [{name: as_cell(each[name]) for name in COLUMNS} for each in expected]


async def test_one_session_can_be_had_alone(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hi", name="mine")
        await w.ask("hi", name="yours")
        await w.sessions(2)
        mine = (await w.get("/api/sessions/mine"))["id"]
        by_id = (await w.get(f"/api/export/json?session={mine}"))["metrics"]
        by_name = await csv_rows(w, "?session=mine")
    assert isinstance(by_id, list)
    assert [row["session_id"] for row in by_name] == [each["session_id"] for each in by_id] == [mine]


async def test_nothing_is_a_file_too(tmp_path: Path):
    async with world(tmp_path) as w:
        assert await w.get("/api/export/json") == {"metrics": []}
        assert await csv_rows(w) == []


async def test_a_cell_never_begins_like_a_formula(tmp_path: Path):
    nasty = [f'{sign}HYPERLINK("http://evil.example","x")' for sign in FORMULA] + ['"quoted", and more\r\nlines']
    async with world(tmp_path) as w:
        metrics = [replace(a_metric(f"req_{n}"), model=model) for n, model in enumerate(nasty)]
        await ledger_of(w).sessions.write([], metrics)
        rows = await csv_rows(w)
        exported = (await w.get("/api/export/json"))["metrics"]
    shown = [row["model"] for row in rows]
    assert shown == [f"'{model}" for model in nasty[:-1]] + nasty[-1:]
    assert isinstance(exported, list)
    assert [_model(each) for each in exported] == nasty


def _model(metric: JsonObject) -> JsonValue:
    return metric["model"]


def test_every_column_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text("utf-8")

    assert [name for name in COLUMNS if f"`{name}`" not in page] == []
