import json
from collections.abc import AsyncIterator

import pytest
from tests.support.fakes import MemoryOriginals
from tests.support.texts import a_log
from tests.support.tool_schemas import PRUNE_SCHEMA

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.tool import Tool
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.tools import prune_text
from kimi_proxy.services.tools.prune_text import PruneText
from kimi_proxy.services.workers.pool import Workers


@pytest.fixture
async def tool() -> AsyncIterator[Tool[PruneText]]:
    workers = Workers(limit=1, thread_max_chars=32 * 1024)
    yield prune_text.tool(Pruner(PrunerSettings(), MemoryOriginals(), workers))
    await workers.close()


def arguments(**changed: JsonValue) -> JsonObject:
    options: JsonObject = {
        "max_prune_ratio": 0.8,
        "min_keep_lines": 5,
        "timeout_ms": 60_000,
        "annotate_lines": True,
        "include_markers": True,
    }
    given: JsonObject = {
        "text": a_log(300),
        "goal_hint": "why was the payment refused?",
        "source_type": "logs",
        "options": options | {name: value for name, value in changed.items() if name in options},
    }
    return given | {name: value for name, value in changed.items() if name not in options}


async def test_the_schema_is_the_contracts(tool: Tool[PruneText]) -> None:
    assert json.dumps(tool.schema) == json.dumps(json.loads(PRUNE_SCHEMA))


async def test_the_tool_says_what_it_is(tool: Tool[PruneText]) -> None:
    assert (tool.name, tool.title, tool.read_only, tool.aliases) == ("prune_text", "Prune a text", True, ())
    assert "⟦PRUNÉ: prune_id=<id> lignes <start>-<end> (<count>) raison=<reason>⟧" in tool.description
    # Clients show a model about 2 kB of a description.
    assert len(tool.description.encode()) < 1500


async def test_the_answer_is_the_same_json_as_text_and_as_structure(tool: Tool[PruneText]) -> None:
    answer = await tool.call(LOCAL, arguments())
    assert answer.structured is not None
    assert json.loads(answer.text) == answer.structured
    assert not answer.is_error


async def test_the_answer_has_the_fields_of_the_contract_in_its_order(tool: Tool[PruneText]) -> None:
    answer = json.loads((await tool.call(LOCAL, arguments())).text)
    assert list(answer) == ["prune_id", "pruned_text", "annotations", "stats", "warnings"]
    assert list(answer["stats"]) == [
        "original_lines",
        "kept_lines",
        "pruned_lines",
        "pruned_ratio",
        "tokens_est_before",
        "tokens_est_after",
        "elapsed_ms",
        "used_fallback",
        "backend",
        "tokens_saved_est",
        "numbering",  # ours
    ]
    assert answer["annotations"]
    for annotation in answer["annotations"]:
        assert list(annotation) == [
            "kind",
            "original_start_line",
            "original_end_line",
            "pruned_line_count",
            "reason",
            "marker",
        ]
        assert annotation["kind"] == "pruned_block"
        assert annotation["marker"] in answer["pruned_text"].split("\n")


async def test_lone_surrogates_survive_the_journey(tool: Tool[PruneText]) -> None:
    text = "\ud800 \x00\n" + a_log(300)
    answer = await tool.call(LOCAL, arguments(text=text, goal_hint="payment \udfff"))
    assert json.loads(answer.text) == answer.structured


@pytest.mark.parametrize("ratio", [0, 1, 0.5, 1.0, 0.0])
async def test_whole_numbers_are_ratios_too(tool: Tool[PruneText], ratio: float) -> None:
    assert (await tool.call(LOCAL, arguments(max_prune_ratio=ratio))).structured


@pytest.mark.parametrize("huge", [2**63, 10**40, 1e30])
async def test_numbers_beyond_all_measure_are_understood(tool: Tool[PruneText], huge: float) -> None:
    answer = (await tool.call(LOCAL, arguments(min_keep_lines=huge, timeout_ms=huge, text=a_log(2000)))).structured
    assert answer and answer["warnings"] == ["constraints_unmet"]


async def test_a_whole_number_may_be_written_as_a_float(tool: Tool[PruneText]) -> None:
    answer = (await tool.call(LOCAL, arguments(min_keep_lines=3.0, timeout_ms=1500.0))).structured
    assert answer and answer["warnings"] == []


WRONG: list[tuple[str, JsonObject]] = [
    ("text", {"text": 7}),
    ("text", {"text": None}),
    ("goal_hint", {"goal_hint": ["a"]}),
    ("source_type", {"source_type": "yaml"}),
    ("source_type", {"source_type": "CODE"}),
    ("options", {"options": None}),
    ("options", {"options": "{}"}),
    ("options.max_prune_ratio", {"max_prune_ratio": 1.01}),
    ("options.max_prune_ratio", {"max_prune_ratio": -0.1}),
    ("options.max_prune_ratio", {"max_prune_ratio": True}),
    ("options.max_prune_ratio", {"max_prune_ratio": "0.5"}),
    ("options.max_prune_ratio", {"max_prune_ratio": float("nan")}),
    ("options.max_prune_ratio", {"max_prune_ratio": 10**400}),
    ("options.min_keep_lines", {"min_keep_lines": -1}),
    ("options.min_keep_lines", {"min_keep_lines": True}),
    ("options.min_keep_lines", {"min_keep_lines": 1.5}),
    ("options.min_keep_lines", {"min_keep_lines": float("inf")}),
    ("options.min_keep_lines", {"min_keep_lines": "1"}),
    ("options.timeout_ms", {"timeout_ms": 0}),
    ("options.timeout_ms", {"timeout_ms": None}),
    ("options.annotate_lines", {"annotate_lines": 1}),
    ("options.annotate_lines", {"annotate_lines": "true"}),
    ("options.include_markers", {"include_markers": 0}),
    ("surprise", {"surprise": 1}),
]


@pytest.mark.parametrize(("field", "changed"), WRONG)
async def test_a_wrong_argument_is_named(tool: Tool[PruneText], field: str, changed: JsonObject) -> None:
    with pytest.raises(InvalidParams) as refused:
        await tool.call(LOCAL, arguments(**changed))
    assert refused.value.field == field


@pytest.mark.parametrize("missing", ["text", "goal_hint", "source_type", "options"])
async def test_a_missing_argument_is_named(tool: Tool[PruneText], missing: str) -> None:
    given = arguments()
    del given[missing]
    with pytest.raises(InvalidParams) as refused:
        await tool.call(LOCAL, given)
    assert refused.value.field == missing


async def test_every_option_is_required_and_no_other_is_known(tool: Tool[PruneText]) -> None:
    options = arguments()["options"]
    assert isinstance(options, dict)
    for name in options:
        fewer = {n: v for n, v in options.items() if n != name}
        with pytest.raises(InvalidParams) as refused:
            await tool.call(LOCAL, arguments(options=fewer))
        assert refused.value.field == f"options.{name}"
    with pytest.raises(InvalidParams) as refused:
        await tool.call(LOCAL, arguments(options={**options, "aggressive": True}))
    assert refused.value.field == "options.aggressive"
