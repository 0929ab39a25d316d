"""Files made to hang the reader or to fill its memory: each is passed over, and what lies beside it is read."""

import json
import os
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from kimi_proxy.lab import audit_report
from kimi_proxy.lab.audit import audit
from kimi_proxy.lab.transcripts import opencode
from kimi_proxy.lab.transcripts.places import MAX_READ_BYTES, TranscriptPlace, bounded_lines, find, load

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CLAUDE = [
    b'{"type":"user","sessionId":"s1","message":{"role":"user","content":"go"}}',
    b'{"type":"assistant","sessionId":"s1","message":{"id":"m","content":[{"type":"text","text":"ok"}]}}',
]
CODEX = [
    b'{"type":"session_meta","payload":{"id":"c1"}}',
    b'{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"text":"ok"}]}}',
]
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id FROM n"
TABLES = (
    "CREATE TABLE session (id TEXT)",
    "CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT)",
    "CREATE TABLE part (id TEXT, message_id TEXT, data TEXT)",
    "INSERT INTO session VALUES ('ses_1')",
    "INSERT INTO message VALUES ('msg_1', 'ses_1', 1, '{\"role\": \"assistant\"}')",
)


def put(file: Path, lines: list[bytes]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\n".join(lines) + b"\n")
    return file


def ids(found: list[TranscriptPlace]) -> list[tuple[str, str]]:
    return [(one.agent, one.id) for place in found for one in load(place)]


def database(folder: Path, *statements: str) -> Path:
    file = folder / "opencode.db"
    with closing(sqlite3.connect(file)) as made:
        for statement in statements:
            made.execute(statement)
        made.commit()
    return file


def test_a_database_of_plain_tables_is_read(tmp_path: Path):
    assert ids(find([("x", database(tmp_path, *TABLES))])) == [("opencode", "ses_1")]


@pytest.mark.parametrize(
    "statements",
    [
        (f"CREATE VIEW session AS {ENDLESS}", *TABLES[1:3]),
        ("CREATE VIEW session AS SELECT zeroblob(2000000000) AS id", *TABLES[1:3]),
        ("CREATE TABLE session (id AS (zeroblob(1000000000)), x)", *TABLES[1:3], "INSERT INTO session (x) VALUES (1)"),
        (
            "CREATE TABLE session (id TEXT)",
            "CREATE TABLE message (id TEXT, session_id TEXT, time_created, x, data AS (hex(zeroblob(500000000))))",
            TABLES[2],
            TABLES[3],
        ),
    ],
)
def test_a_database_that_computes_its_rows_is_passed_over(tmp_path: Path, statements: tuple[str, ...]):
    assert ids(find([("x", database(tmp_path, *statements))])) == []


def test_a_stored_value_above_the_limit_is_not_held(tmp_path: Path):
    file = database(tmp_path, *TABLES)
    with closing(sqlite3.connect(file)) as made:
        made.execute("INSERT INTO part VALUES ('prt_1', 'msg_1', zeroblob(?))", (opencode.MAX_VALUE_BYTES + 1,))
        made.commit()

    assert ids(find([("x", file)])) == []


def test_a_query_that_takes_too_many_steps_ends_the_reading(tmp_path: Path):
    many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000) SELECT x, 'other', '{}' FROM n"
    file = database(tmp_path, *TABLES, f"INSERT INTO part {many}")

    assert len(list(opencode.read_database(file))) == 1
    assert list(opencode.read_database(file, max_steps=20_000)) == []


@pytest.mark.skipif(os.name == "nt", reason="there are no such files there")
def test_links_devices_and_pipes_are_passed_over(tmp_path: Path):
    put(tmp_path / "real.jsonl", CLAUDE)
    for name in ("zero.jsonl", "zero.traj", "export.json", "opencode.db"):
        (tmp_path / name).symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.jsonl")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "inner").symlink_to("/dev")

    assert ids(find([("x", tmp_path)])) == [("Claude Code", "s1")]


@pytest.mark.skipif(os.name == "nt", reason="there are no such files there")
@pytest.mark.parametrize("name", ["s1.jsonl", "run.traj", "opencode.db", "rollout.jsonl.zst"])
def test_a_file_that_became_a_link_or_a_pipe_meanwhile_is_passed_over(tmp_path: Path, name: str):
    file = put(tmp_path / name, CLAUDE)
    (place,) = find([("x", tmp_path)])
    file.unlink()
    file.symlink_to("/dev/zero")
    assert list(load(place)) == []

    file.unlink()
    os.mkfifo(file)
    assert list(load(place)) == []


@pytest.mark.skipif(os.name == "nt", reason="there are no such files there")
def test_parts_of_an_opencode_folder_that_are_links_end_the_session(tmp_path: Path):
    storage = tmp_path / "storage"
    put(storage / "session/project/ses_1.json", [b'{"id": "ses_1"}'])
    (storage / "message/ses_1").mkdir(parents=True)
    (storage / "message/ses_1/msg_1.json").symlink_to("/dev/zero")

    assert ids(find([("x", tmp_path)])) == []


def test_a_bomb_of_zstd_is_read_up_to_its_limit(tmp_path: Path):
    packer = zstd.ZstdCompressor()
    zeros = b"\0" * 1024**2
    with (tmp_path / "rollout-x.jsonl.zst").open("wb") as file:
        file.write(packer.compress(b"\n".join(CODEX) + b"\n"))
        for _ in range(MAX_READ_BYTES // len(zeros) + 64):
            file.write(packer.compress(zeros))
        file.write(packer.compress(b"\n" + b'{"type":"response_item","payload":{"type":"message","role":"user"}}'))
        file.write(packer.flush())

    (place,) = find([("x", tmp_path)])
    (transcript,) = load(place)

    assert place.size < 200_000
    assert (transcript.id, len(transcript.requests)) == ("c1", 1)


def test_reading_stops_at_its_limit_of_bytes(tmp_path: Path):
    file = put(tmp_path / "many.jsonl", [b"x" * 99] * 100)

    with file.open("rb") as opened:
        assert len(list(bounded_lines(opened, max_bytes=1000))) == 10


@pytest.mark.parametrize("count", ["1e999", "1e308", "NaN", "-5", "99999999999999999999"])
@pytest.mark.parametrize("stamp", ["1e999", "NaN", "1e308", "-1"])
def test_no_line_makes_the_report_say_nan(tmp_path: Path, count: str, stamp: str):
    usage = f'{{"input_tokens": {count}, "output_tokens": {count}, "cache_read_input_tokens": {count}}}'
    answer = f'{{"id": "m1", "model": "claude-opus-5", "content": [], "usage": {usage}}}'
    bad = f'{{"type": "assistant", "sessionId": "s1", "timestamp": {stamp}, "message": {answer}}}'
    put(tmp_path / "s1.jsonl", [CLAUDE[0], bad.encode(), *CLAUDE])

    done = audit(find([("x", tmp_path)]), lambda done, total: None, processes=1)
    told = audit_report.as_text(done) + json.dumps(audit_report.as_json(done)) + audit_report.as_html(done)

    assert len(done.sessions) == 1
    assert " nan" not in told.lower()
    assert not {"Infinity", "NaN", "inf"} & set(told.replace(",", " ").replace("%", " ").split())


def test_a_bomb_of_empty_lines_is_read_in_seconds(tmp_path: Path):
    """103 KB kept the audit busy for more than 90 s."""
    packed = zstd.compress(b"\n".join(CODEX) + b"\n" * 400 * 1024**2)
    (tmp_path / "rollout-x.jsonl.zst").write_bytes(packed)
    (place,) = find([("x", tmp_path)])

    began = time.process_time()
    (transcript,) = load(place)
    took_s = time.process_time() - began

    assert len(packed) < 103 * 1024
    assert (transcript.id, len(transcript.requests)) == ("c1", 1)
    assert took_s < 20
