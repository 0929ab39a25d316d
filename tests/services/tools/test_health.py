import json
from datetime import datetime, timedelta, timezone

import pytest

from kimi_proxy import __version__
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.features.pruning import model
from kimi_proxy.services.tools import prune_text


async def test_health_reads_as_the_contract_says() -> None:
    noon = datetime(2026, 2, 26, 13, 0, 0, 123, timezone(timedelta(hours=1)))
    tool = prune_text.health_tool(lambda: prune_text.check_health(lambda: noon))
    answer = await tool.call(LOCAL, {})
    assert answer.structured == {
        "status": "healthy",
        "server": "mcp-pruner",
        "version": __version__,
        "capabilities": ["prune_text", "recover_text", "annotations", "markers"],
        "timestamp": "2026-02-26T13:00:00+01:00",
    }
    assert json.loads(answer.text) == answer.structured
    assert (tool.name, tool.read_only) == ("health", True)


async def test_the_time_is_now_with_its_offset() -> None:
    answer = (await prune_text.health_tool().call(LOCAL, {})).structured
    assert answer
    told = datetime.fromisoformat(str(answer["timestamp"]))
    assert told.utcoffset() is not None
    assert abs(datetime.now().astimezone() - told) < timedelta(minutes=1)


async def test_health_takes_no_arguments() -> None:
    with pytest.raises(InvalidParams) as refused:
        await prune_text.health_tool().call(LOCAL, {"verbose": True})
    assert refused.value.field == "verbose"


async def test_a_scorer_that_was_refused_is_told_and_the_pruner_is_still_healthy() -> None:
    answer = await prune_text.check_health(scorers=lambda: model.load(b"not a model"))
    assert answer["status"] == "healthy"
    assert "weights set by hand decide" in answer["scorer"]
