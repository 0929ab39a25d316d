"""`kimi-proxy audit` as a person and a program run it."""

import json
import re
import time
from pathlib import Path

import anyio
import pytest

from kimi_proxy.features.chat.sessions import LOCAL_IDS
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.store.protocols import SessionRecord
from kimi_proxy.services.store.sqlite.store import SqliteStore

from .conftest import Cli

RECORDINGS = Path(__file__).parent.parent / "recordings"
SESSION = [
    {"type": "user", "sessionId": "s1", "message": {"role": "user", "content": "go"}},
    {"type": "assistant", "sessionId": "s1", "message": {"id": "m", "content": [{"type": "text", "text": "ok"}]}},
]


@pytest.fixture
def recordings(cli: Cli) -> Path:
    """The first five requests of each recording, after what it says of its model."""
    folder = cli.here / "recordings"
    folder.mkdir()
    for file in RECORDINGS.glob("*.jsonl"):
        lines = file.read_text("utf-8").splitlines(keepends=True)
        (folder / file.name).write_text("".join(lines[:6]), "utf-8")
    return folder


def test_a_person_reads_where_the_money_went_and_what_could_be_saved(cli: Cli, recordings: Path):
    done = cli("audit", str(recordings))

    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.match(r"You would have saved \d+\.\d\d of \d+\.\d\d USD \(\d+\.\d%\)[;.]", text)
    assert "\n3 sessions of kimi-proxy: " in text
    assert "\nWhere the money went\n" in text
    assert "\nTo begin: kimi-proxy start" in text
    assert "[sanitizer] policy" not in text


def test_a_person_who_wants_more_reads_every_policy_by_its_name(cli: Cli):
    text = cli("audit", str(RECORDINGS), "--more").stdout.decode()

    assert "What [sanitizer] policy would have saved, net of everything it costs" in text
    for policy in ("careful", "default", "deep"):
        assert re.search(rf"^  {policy} +-?\d+\.\d%", text, re.M)


def test_a_program_reads_json_and_a_colleague_a_page(cli: Cli):
    done = cli("audit", str(RECORDINGS / "log-hunt.jsonl"), "--json", "--html", "page.html")

    told = json.loads(done.stdout)
    assert (done.returncode, told["sessions"], told["requests"]) == (0, 1, 19)
    assert (cli.here / "page.html").read_text("utf-8").startswith("<!doctype html>")


def test_without_a_path_the_usual_places_are_read(cli: Cli):
    folder = Path(cli.env["HOME"]) / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    (folder / "s1.jsonl").write_text("\n".join(map(json.dumps, SESSION)))

    done = cli("audit")

    assert "\n1 session of Claude Code: 1 request, " in done.stdout.decode()


def test_on_a_machine_without_sessions_it_says_where_it_looked_and_offers_the_demo(cli: Cli):
    done = cli("audit")

    text = done.stdout.decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert text.startswith("No agent sessions found in:\n")
    home = Path(cli.env["HOME"])
    for name, folder in (
        ("Claude Code", ".claude/projects"),
        ("Gemini CLI", ".gemini/tmp"),
        ("pi", ".pi/agent/sessions"),
    ):
        assert f"  {name:<14}  {home / folder}\n" in text
    assert text.endswith("kimi-proxy demo\n")


def test_a_folder_without_sessions_is_named(cli: Cli):
    (cli.here / "empty").mkdir()

    done = cli("audit", "empty")
    told = json.loads(cli("audit", "empty", "--json").stdout)

    assert (done.returncode, done.stdout.decode().splitlines()[:2]) == (
        0,
        ["No agent sessions found in:", "  empty  empty"],
    )
    assert told == {"sessions": 0, "searched": ["empty"]}


def test_a_path_that_does_not_exist_and_a_page_that_cannot_be_written_are_refused(cli: Cli, recordings: Path):
    assert b"does not exist" in cli("audit", "missing").stderr
    assert cli("audit", str(recordings), "--html", "no/such/page.html").returncode == 2


async def keep_session(home: Path, name: str, after: int) -> None:
    """Write a request of a session as the proxy does: 5,000 tokens as it came, `after` as it left."""
    store = await SqliteStore.open(home, ttl_s=86_400, max_bytes=2**30, timeout_s=60)
    id = LOCAL_IDS.session_named(name).id
    session = SessionRecord(id, name, "", "p", "m", time.time(), time.time())
    metric = Metric("req_1", id, time.time(), "p", "m", "anthropic", after, 5_000 - after, (), None, 200, "ok")
    await store.sessions.write([session], [metric])
    await store.close()


@pytest.mark.parametrize(("after", "left_out"), [(1_000, 1), (5_000, 0)])
def test_a_session_is_left_out_if_its_requests_were_shortened_on_the_way(cli: Cli, after: int, left_out: int):
    folder = Path(cli.env["HOME"]) / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    for name in ("s1", "s2"):
        lines = (json.dumps(line | {"sessionId": name}) for line in SESSION)
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    anyio.run(keep_session, Path(cli.env["KIMI_PROXY_HOME"]), "s2", after)

    done = cli("audit", "--json")

    told = json.loads(done.stdout)
    assert (done.returncode, told["sessions"], told["left_out"]) == (0, 2 - left_out, left_out)


def test_an_audit_makes_no_store_and_reads_on_if_there_is_none_to_read(cli: Cli, recordings: Path):
    home = Path(cli.env["KIMI_PROXY_HOME"])
    assert cli("audit", str(recordings)).returncode == 0
    assert not (home / "store").exists()

    (home / "store").mkdir(parents=True)
    (home / "store" / "originals.sqlite3").write_bytes(b"no database" * 100)
    done = cli("audit", str(recordings))

    assert done.returncode == 0
    assert b"\n3 sessions of kimi-proxy: " in done.stdout
    assert b"sessions that went through kimi-proxy are not left out" in done.stderr
    assert (home / "store" / "originals.sqlite3").read_bytes() == b"no database" * 100


def test_no_code_of_a_transcript_reaches_the_terminal(cli: Cli):
    counted = {"input_tokens": 1000, "output_tokens": 5}
    evil = "evil\u001b]0;pwned\u0007\u009b31m"
    call = {"type": "tool_use", "id": "t1", "name": f"mcp__{evil}__{evil}", "input": {}}
    answer = {"id": "m1", "model": evil, "usage": counted, "content": [call]}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x\n" * 5000}
    session = [
        SESSION[0],
        {"type": "assistant", "sessionId": "s1", "version": evil, "message": answer},
        {"type": "user", "sessionId": "s1", "message": {"role": "user", "content": [result]}},
        {"type": "assistant", "sessionId": "s1", "message": {**answer, "id": "m2"}},
    ]
    (cli.here / "s1.jsonl").write_text("\n".join(map(json.dumps, session)))

    done = cli("audit", "s1.jsonl")

    text = done.stdout.decode()
    assert done.returncode == 0
    assert "evil" in text
    assert not [char for char in text if char != "\n" and (char < " " or "\x7f" <= char <= "\x9f")]
