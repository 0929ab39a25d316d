"""Real agents on a provider that caches by Anthropic's rules: their bytes change only where it is said that they do."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

import pytest
from tests.clients.programs.agents import AGENTS, OFFLINE, TASK, AgentCase, Command, Place
from tests.clients.programs.packages import INSTALL_S, python_with
from tests.clients.programs.running import PATIENCE_S, new_place, run
from tests.clients.programs.worker import RECALL
from tests.support.api.proxy_world import proxy
from tests.support.cached_days import changed_prefixes
from tests.support.cached_providers import CachedProvider, anthropic
from tests.support.deep import deep
from tests.support.evil import Heard, Line, evil
from tests.support.fakes import Clock

from kimi_proxy.core.chat import Wire
from kimi_proxy.features import recording

pytestmark = [deep("it installs programs from npm or PyPI: minutes"), pytest.mark.timeout(INSTALL_S + 4 * PATIENCE_S)]

SETTINGS = "[sanitizer]\nbudget_ms = 60000\n[record]\nenabled = true\n"
PRICES = {"plain": 5.0, "read": 0.5, "write": 6.25, "hour": 10.0, "output": 25.0}
# What may be new in a request: a mark of the prompt cache, our tool, and a result with the marker of a cut.
SAID = re.compile(rb'"cache_control"|"recover_text"|prn_[0-9a-z]{16}|msk_[0-9a-z]{16}')
PIECES = re.compile(rb'"(?:[^"\\]|\\.)*"|[^"]+', re.DOTALL)


def _mini_swe_on_anthropic(place: Place) -> Command:
    python = python_with("mini-swe-2.4.6", "mini-swe-agent==2.4.6", "mcp>=2")
    place.write("mini.yaml", f"model:\n  model_kwargs:\n    api_base: {place.url}\n    api_key: sk-ant-api03-x\n")
    kept = str(place.home / "trajectory.json")
    options = ("-m", "anthropic/claude-opus-5", "-y", "--exit-immediately", "-o", kept, "-c", "mini.yaml")
    argv = (python, "-m", "minisweagent.run.mini", *options, "-c", str(place.home / "mini.yaml"), "-t", TASK)
    return Command(argv, {"MSWEA_CONFIGURED": "1", "MSWEA_COST_TRACKING": "ignore_errors", **OFFLINE})


CASES = {
    "claude": next(case for case in AGENTS if case.name == "claude"),
    "mini-swe": replace(
        next(case for case in AGENTS if case.name == "mini-swe-agent"),
        prepare=_mini_swe_on_anthropic,
        wire=Wire.MESSAGES,
    ),
}


def bodies(state: Path) -> list[bytes]:
    """Return the requests as the agent sent them."""
    files = sorted(state.rglob("recordings/**/*.jsonl"))
    return [one.body.encode() for file in files for one in recording.read(file.read_bytes().splitlines()).requests]


def differences(came: bytes, left: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield what is in one and not in the other, in strings and what stands between them."""
    old, new = PIECES.findall(came), PIECES.findall(left)
    assert b"".join(old) == came
    for what, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what != "equal":
            yield b"".join(old[a:b]), b"".join(new[c:d])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_bytes_change_only_where_it_is_said(tmp_path: Path, case: AgentCase):
    worker, clock = case.worker_on_long_job(tmp_path / "project"), Clock(1_800_000_000.0)
    cached = CachedProvider(clock, anthropic, PRICES)

    async def script(heard: Heard, line: Line) -> None:
        # A round in which the model reads something back goes on from the request, and is no request of the agent.
        if heard.body and RECALL.encode() not in heard.body:
            clock.advance(20)
            cached.charge(json.loads(heard.body), is_messages=True)
        await case.provider(worker)(heard, line)

    async with evil(script) as provider, proxy(tmp_path / "state", provider.toml(case.provider_type) + SETTINGS) as p:
        outcome = await run(case, new_place(tmp_path, f"http://127.0.0.1:{p.port}"))
        await p.runtime.sessions.caught_up()
    came = bodies(tmp_path / "state")
    left = [heard.body for heard in provider.heard if heard.body and RECALL.encode() not in heard.body]

    assert outcome.is_success, outcome
    assert len(came) == len(left) == len(worker.steps) + 1
    changed = [list(differences(*pair)) for pair in zip(came, left, strict=True)]
    assert [each for pair in changed for each in pair if not SAID.search(each[1])] == []
    assert worker.recovered, "something was cut, and read back"
    assert cached.refused == []
    assert changed_prefixes(cached.prompts) == set()
