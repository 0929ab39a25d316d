"""Agents themselves with a scripted provider, directly and through the proxy. Run by ./test.sh --deep."""

import asyncio
from pathlib import Path

import pytest
from tests.clients.programs.agents import AGENTS, MODEL, AgentCase
from tests.clients.programs.job import AFTER, LOG
from tests.clients.programs.packages import INSTALL_S
from tests.clients.programs.running import PATIENCE_S, new_place, run
from tests.clients.programs.worker import MARKER, reframed, rewritten
from tests.support.api.proxy_world import proxy
from tests.support.deep import deep
from tests.support.evil import evil

SETTINGS = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n'

pytestmark = [deep("it installs programs from npm or PyPI: minutes"), pytest.mark.timeout(INSTALL_S + 4 * PATIENCE_S)]


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the user, with which requests to Bedrock are signed."""
    for name, value in {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)


def holds(folder: Path, word: bytes) -> list[str]:
    """Return the files that hold a word: what an agent keeps of its conversation."""
    return [str(file) for file in folder.rglob("*") if file.is_file() and word in file.read_bytes()]


@pytest.mark.parametrize("case", AGENTS, ids=lambda case: case.name)
async def test_an_agent_does_a_job_of_eight_calls_through_the_proxy_as_it_does_directly(
    tmp_path: Path, case: AgentCase
):
    alone, model = (case.worker_on_long_job(tmp_path / name / "project") for name in ("direct", "proxied"))
    async with evil(case.provider(alone)) as provider:
        direct = await run(case, new_place(tmp_path / "direct", provider.url.removesuffix("/v1")))
    assert direct.is_success, direct
    assert case.replies or direct.files == AFTER, "the job was done, with the agent's own tools"
    async with (
        evil(case.provider(model)) as provider,
        proxy(tmp_path / "state", provider.toml(case.provider_type) + SETTINGS) as p,
    ):
        at = new_place(tmp_path / "proxied", f"http://127.0.0.1:{p.port}")
        proxied = await run(case, at)
        cuts = (await p.http.get("/api/cuts")).json()

    assert proxied.is_success, proxied
    assert proxied.files == direct.files
    assert [line for text in model.recovered for line in text.split("\n") if line not in LOG.text] == []
    last = model.requests[-1]
    assert case.replies or (b"total=7196" in last and last.count(b"The tax was left out") > 1), "written and read"
    assert bool(model.recovered) is case.reads_back, (cuts, [raw[-2000:] for raw in model.requests])
    assert len(model.requests) == len(alone.requests) + len(model.recovered), "one more for what was read back"
    key = case.wire.format.conversation
    assert rewritten(model.requests, key) <= rewritten(alone.requests, key)
    assert reframed(model.requests, key) <= reframed(alone.requests, key)
    assert "recover_text" not in proxied.output and holds(tmp_path / "proxied", b"recover_text") == []


@pytest.mark.parametrize("case", [case for case in AGENTS if case.reads_back], ids=lambda case: case.name)
async def test_an_agent_does_not_notice_that_the_provider_is_busy_while_its_model_reads_back(
    tmp_path: Path, case: AgentCase
):
    model = case.worker()
    model.refusals = 2
    async with (
        evil(case.provider(model)) as provider,
        proxy(tmp_path / "state", provider.toml(case.provider_type) + SETTINGS) as p,
    ):
        outcome = await run(case, new_place(tmp_path, f"http://127.0.0.1:{p.port}"))

    assert outcome.is_success, outcome
    assert len(model.requests) == 4 and len(set(model.recovered)) == 1, "no round was asked for twice"


@pytest.mark.parametrize(
    "case", [case for case in AGENTS if case.name in ("pi", "opencode")], ids=lambda case: case.name
)
async def test_an_agent_of_chat_completions_works_on_anthropic_s_messages(tmp_path: Path, case: AgentCase):
    model, named = case.worker(), f'[models.{MODEL}]\nprovider = "anthropic-evil"\n'
    async with (
        evil(case.provider(model)) as provider,
        proxy(tmp_path / "state", provider.toml("anthropic") + named + SETTINGS) as p,
    ):
        outcome = await run(case, new_place(tmp_path, f"http://127.0.0.1:{p.port}"))

    assert outcome.is_success, outcome
    assert model.recovered and {heard.target for heard in provider.heard} == {"/v1/messages"}


RESTARTED = [case for case in AGENTS if case.reads_back]


@pytest.mark.parametrize("case", RESTARTED, ids=lambda case: case.name)
async def test_an_agent_goes_on_when_we_are_restarted_in_the_middle_of_its_work(tmp_path: Path, case: AgentCase):
    model, state = case.worker(), tmp_path / "state"
    model.last_step_s = 7  # in which the server stops and starts again
    async with evil(case.provider(model)) as provider:
        toml = provider.toml(case.provider_type) + SETTINGS
        async with proxy(state, toml) as p:
            port = p.port
            running = asyncio.create_task(run(case, new_place(tmp_path, f"http://127.0.0.1:{port}")))
            await asyncio.wait(
                {running, asyncio.ensure_future(model.is_at_last_step.wait())}, return_when="FIRST_COMPLETED"
            )
        async with proxy(state, toml, port):
            outcome = await running

    assert outcome.is_success, outcome
    before, after = MARKER.search(model.requests[1]), MARKER.search(model.requests[-1])
    assert model.recovered and before and after and before[0] == after[0], "what was cut before is cut after it"
