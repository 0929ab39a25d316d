"""`kimi-proxy sessions`: what other commands take as SESSION."""

import json
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.support.services.store.making import a_session

from kimi_proxy.services.store.sqlite.store import SqliteStore

from .conftest import Cli

DAY_S = 86_400


@pytest.fixture
def kept(cli: Cli) -> Cli:
    """Two sessions without requests."""

    async def write() -> None:
        store = await SqliteStore.open(Path(cli.env["KIMI_PROXY_HOME"]), ttl_s=DAY_S, max_bytes=2**30, timeout_s=60)
        first = a_session("ses_first", name="day-1", title="Fix the parser")
        second = replace(a_session("ses_second", name="", title="Write the docs"), last_used=first.last_used + 60)
        await store.sessions.write([first, second], [])
        await store.close()

    anyio.run(write)
    return cli


def test_the_newest_session_comes_first_with_its_id_and_its_title(kept: Cli):
    done = kept("sessions")

    head, first, second = done.stdout.decode().splitlines()
    assert head.split()[:1] == ["session"]
    assert first.startswith("ses_second") and "Write the docs" in first
    assert second.startswith("ses_first") and "day-1" in second


def test_a_program_reads_as_many_as_it_asked_for(kept: Cli):
    listed = json.loads(kept("sessions", "--json", "--limit", "1").stdout)["sessions"]
    assert [one["id"] for one in listed] == ["ses_second"]


def test_an_empty_home_says_how_a_session_begins(cli: Cli):
    done = cli("sessions")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"kimi-proxy init CLIENT" in done.stderr


def test_an_unknown_session_and_an_unknown_model_say_what_to_type_next(kept: Cli):
    unknown = kept("report", "--session", "nobody")
    models = kept("models", "zzz")

    assert b"kimi-proxy sessions" in unknown.stderr + unknown.stdout
    assert models.returncode == 0
    assert b"kimi-proxy models lists all" in models.stderr
