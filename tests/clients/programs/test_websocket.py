"""Codex on a WebSocket: the same work as over HTTP, with less to send. ./test.sh --deep runs it; -s shows numbers."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.clients.programs.agents import AGENTS, AgentCase
from tests.clients.programs.job import Run
from tests.clients.programs.packages import INSTALL_S
from tests.clients.programs.running import PATIENCE_S, new_place, run
from tests.clients.programs.worker import RECALL, Worker, rewritten
from tests.support import tcp
from tests.support.api.proxy_world import proxy
from tests.support.deep import deep
from tests.support.evil import Evil, evil

pytestmark = [deep, pytest.mark.timeout(INSTALL_S + 4 * PATIENCE_S)]

STEPS = (
    Run("cat app.log"),
    Run("wc -l app.log > count.txt; cat count.txt"),
    Run("head -c 6000 app.log"),
    Run("cp app.log copy.log; tail -c 6000 copy.log"),
    Run("ls"),
    Run("rm copy.log; echo finished > made.txt"),
)
SETTINGS = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n'
CODEX = [case for case in AGENTS if case.name.startswith("codex")]


@dataclass(slots=True)
class Wire:
    """What a client sends to the proxy."""

    port: int = 0
    to_port: int = 0
    connections: int = 0
    sent: int = 0


@asynccontextmanager
async def wire() -> AsyncIterator[Wire]:
    counted = Wire()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counts: bool) -> None:
        try:
            while piece := await reader.read(1 << 16):
                counted.sent += len(piece) if counts else 0
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        counted.connections += 1
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", counted.to_port)
        await asyncio.gather(copy(reader, to_writer, True), copy(to_reader, writer, False))

    async with tcp.listening(talk) as counted.port:
        yield counted


@dataclass(frozen=True, slots=True)
class Job:
    """One run of Codex through the proxy."""

    model: Worker
    provider: Evil
    wire: Wire
    files: dict[str, bytes]


async def work(case: AgentCase, folder: Path, *, over_websocket: bool) -> Job:
    model = replace(case.worker(), steps=STEPS)
    offered = f"[proxy]\nresponses_websocket = {str(over_websocket).lower()}\n"
    async with evil(case.provider(model)) as provider, wire() as counted:
        hosts = f'[access]\nallowed_hosts = ["127.0.0.1:{counted.port}"]\n'
        async with proxy(folder / "state", provider.toml(case.provider_type) + SETTINGS + offered + hosts) as p:
            counted.to_port = p.port
            at = new_place(folder, f"http://127.0.0.1:{counted.port}")
            outcome = await run(case, at)
    assert outcome.is_success, outcome
    return Job(model, provider, counted, files_in(at.project))


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CODEX, ids=lambda case: case.name)
async def test_a_job_of_six_calls_is_the_same_over_a_websocket_and_takes_less(tmp_path: Path, case: AgentCase):
    alone = replace(case.worker(), steps=STEPS)
    async with evil(case.provider(alone)) as provider:
        place = new_place(tmp_path / "direct", provider.url.removesuffix("/v1"))
        assert (await run(case, place)).is_success
    posted = await work(case, tmp_path / "posted", over_websocket=False)
    framed = await work(case, tmp_path / "framed", over_websocket=True)

    for job in (posted, framed):
        assert job.files == files_in(place.project)
        assert job.model.recovered, "something was cut, and read back"
        assert rewritten(job.model.requests, "input") == 0, "the prompt cache stays warm"
        assert len(job.model.requests) == len(alone.requests) + len(job.model.recovered)
    print(f"\n{case.name}: POST {posted.wire}; WebSocket {framed.wire}")
    assert framed.wire.sent < posted.wire.sent * 0.5
    assert framed.wire.connections <= posted.wire.connections
    assert len(framed.provider.heard) <= len(posted.provider.heard), "a request for no answer goes nowhere"


@pytest.mark.parametrize("case", CODEX[:1], ids=lambda case: case.name)
async def test_what_codex_posts_and_what_it_frames_reach_the_provider_alike(tmp_path: Path, case: AgentCase):
    posted = await work(case, tmp_path / "posted", over_websocket=False)
    framed = await work(case, tmp_path / "framed", over_websocket=True)

    own = RECALL.encode()
    kinds = [[kinds_of(body) for body in job.model.requests if own not in body] for job in (posted, framed)]
    assert kinds[0] == kinds[1]


def kinds_of(body: bytes) -> list[str]:
    return [item["type"] for item in json.loads(body)["input"]]


@pytest.mark.parametrize("case", CODEX, ids=lambda case: case.name)
async def test_an_answer_that_breaks_off_on_a_websocket_is_asked_for_again(tmp_path: Path, case: AgentCase):
    model = case.worker(breaks=2)
    async with (
        evil(case.provider(model)) as provider,
        proxy(tmp_path / "state", provider.toml(case.provider_type) + SETTINGS) as p,
    ):
        outcome = await run(case, new_place(tmp_path, f"http://127.0.0.1:{p.port}"))

    assert outcome.is_success, outcome
