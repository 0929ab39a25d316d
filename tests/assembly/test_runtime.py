import asyncio
from pathlib import Path

import pytest
from tests.support.processes import Children, until
from tests.support.read_back import read_lines
from tests.support.texts import a_log, a_question

from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.errors import PruneIdNotFound, StoreUnavailable


def a_config(home: Path, **env: str) -> Config:
    return parse("", env, home)


async def test_a_runtime_has_every_tool_under_every_name(tmp_path: Path) -> None:
    async with running(a_config(tmp_path)) as runtime:
        assert sorted(runtime.tools) == ["health", "prune_text", "recover_range", "recover_text"]
        assert runtime.tools["recover_range"] is runtime.tools["recover_text"]


async def test_a_prune_survives_the_end_of_its_runtime(tmp_path: Path) -> None:
    text = a_log(300)
    async with running(a_config(tmp_path)) as runtime:
        answer = await runtime.pruner.prune(LOCAL, a_question(text))
    assert answer.prune_id
    async with running(a_config(tmp_path)) as runtime:
        assert await read_lines(runtime.store.originals, answer.prune_id, [(1, 300)]) == text
        again = await runtime.pruner.prune(LOCAL, a_question(text))
        assert (again.prune_id, again.pruned) == (answer.prune_id, answer.pruned)


async def test_everything_ends_with_the_runtime(tmp_path: Path, my_children: Children) -> None:
    async with running(a_config(tmp_path)) as runtime:
        await runtime.pruner.prune(LOCAL, a_question(a_log(5_000)))
        assert len(my_children()) == 1
    await until(lambda: my_children() == [])
    with pytest.raises(StoreUnavailable, match="closed"):
        await runtime.store.originals.find(LOCAL, bytes(32))


async def test_a_home_that_cannot_be_written_leaves_texts_whole(tmp_path: Path) -> None:
    home = tmp_path / "file"
    home.write_text("not a directory")
    async with running(a_config(home)) as runtime:
        answer = await runtime.pruner.prune(LOCAL, a_question(a_log(300)))
    assert answer.prune_id is None
    assert answer.pruned.text == a_log(300)
    assert answer.pruned.warnings == ("recovery_unavailable",)


async def test_an_id_lives_as_long_as_the_settings_say(tmp_path: Path) -> None:
    config = a_config(tmp_path, MCP_PRUNER_PRUNE_ID_TTL_S="1")
    async with running(config) as runtime:
        answer = await runtime.pruner.prune(LOCAL, a_question(a_log(300)))
        assert answer.prune_id
        prune_id = answer.prune_id
        # Asking whether it is still there would count as use.
        await asyncio.sleep(1.2)
        with pytest.raises(PruneIdNotFound) as gone:
            await read_lines(runtime.store.originals, prune_id, [(1, 1)])
        assert gone.value.reason == "expired"
        # The cache still holds the answer, but its id is no longer honoured: a new one is given.
        again = await runtime.pruner.prune(LOCAL, a_question(a_log(300)))
        assert again.prune_id != prune_id
        assert "cache_hit" not in again.pruned.warnings


async def test_who_opts_in_gets_the_reranker(tmp_path: Path) -> None:
    config = a_config(tmp_path, KIMI_PRUNING_BACKEND="cloud", DEEPINFRA_ENDPOINT_URL="http://127.0.0.1:9/")
    async with running(config) as runtime:
        answer = await runtime.pruner.prune(LOCAL, a_question(a_log(300)))
    assert answer.backend == "deepinfra"
    assert answer.pruned.warnings == ("deepinfra_error", "deepinfra_config_error")
    assert answer.pruned.pruned_lines > 0
