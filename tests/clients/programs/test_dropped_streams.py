"""Agents themselves when a provider's stream breaks off: their retry works through us. Run by ./test.sh --deep."""

from pathlib import Path

import pytest
from tests.clients.programs.agents import AGENTS, AgentCase
from tests.clients.programs.packages import INSTALL_S
from tests.clients.programs.running import PATIENCE_S, new_place, run
from tests.support.api.proxy_world import proxy
from tests.support.deep import deep
from tests.support.evil import evil

pytestmark = [deep("it installs programs from npm or PyPI: minutes"), pytest.mark.timeout(INSTALL_S + 4 * PATIENCE_S)]

SETTINGS = "[sanitizer]\nenabled = false\n"
# After how many events they still ask again; Cline does not once it has read one, with us or without.
RETRYING = {"kimi-cli": 4, "cline": 0, "qwen": 4}


@pytest.mark.parametrize("case", [case for case in AGENTS if case.name in RETRYING], ids=lambda case: case.name)
async def test_an_agent_asks_again_when_its_answer_breaks_off(tmp_path: Path, case: AgentCase):
    alone, model = case.worker(breaks=1), case.worker(breaks=1)
    alone.events_before_break = model.events_before_break = RETRYING[case.name]
    async with evil(alone) as provider:
        direct = await run(case, new_place(tmp_path / "direct", provider.url.removesuffix("/v1")))
    assert direct.is_success, direct
    async with evil(model) as provider, proxy(tmp_path / "state", provider.toml() + SETTINGS) as p:
        proxied = await run(case, new_place(tmp_path / "proxied", f"http://127.0.0.1:{p.port}"))

    assert proxied.is_success, proxied
    assert len(model.requests) == len(alone.requests) == 4, "one more than without a break"
