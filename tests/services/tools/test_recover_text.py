import json

import pytest
from tests.support.fakes import MemoryOriginals
from tests.support.tool_schemas import RECOVER_SCHEMA

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.errors import InvalidParams, InvalidRange, PruneIdNotFound
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.recovery import Recover
from kimi_proxy.features.tool import Tool
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.store.protocols import Original
from kimi_proxy.services.tools import recover_text

ID = "prn_0123456789abcdef"
TEXT = "one\ntwo \r\n\nfour\ud800\n"


@pytest.fixture
async def tool() -> Tool[Recover]:
    store = MemoryOriginals()
    await store.keep(Original(ID, "local", bytes(32), TEXT.encode("utf-8", "surrogatepass"), b"{}"))
    return recover_text.tool(Recovery(store))


def arguments(*ranges: tuple[JsonValue, JsonValue], numbers: JsonValue = False, prune_id: JsonValue = ID) -> JsonObject:
    return {
        "prune_id": prune_id,
        "ranges": [{"start_line": start, "end_line": end} for start, end in ranges],
        "include_line_numbers": numbers,
    }


async def test_the_schema_is_the_contracts(tool: Tool[Recover]) -> None:
    assert json.dumps(tool.schema) == json.dumps(json.loads(RECOVER_SCHEMA))


async def test_the_tool_says_what_it_is(tool: Tool[Recover]) -> None:
    assert (tool.name, tool.aliases, tool.read_only) == ("recover_text", ("recover_range",), True)
    assert tool.title == "Recover pruned lines"
    assert len(tool.description.encode()) < 1500


async def test_lines_come_with_their_numbers_and_what_was_asked(tool: Tool[Recover]) -> None:
    answer = await tool.call(LOCAL, arguments((4, 99), (1, 2), numbers=True))
    assert answer.structured == {
        "raw_text": "4│ four\ud800\n5│ \n1│ one\n2│ two \r",
        "metadata": {
            "prune_id": ID,
            "ranges": [{"start_line": 4, "end_line": 99}, {"start_line": 1, "end_line": 2}],
            "line_numbering": "original",
            "numbering": "lines",
        },
    }
    assert json.loads(answer.text) == answer.structured


async def test_all_lines_are_the_text_to_the_byte(tool: Tool[Recover]) -> None:
    answer = (await tool.call(LOCAL, arguments((1, 5)))).structured
    assert answer and answer["raw_text"] == TEXT


@pytest.mark.parametrize("ranges", [[], [(0, 1)], [(-1, 1)], [(2, 1)], [(6, 7)], [(1, 1), (9, 9)]])
async def test_ranges_that_mean_nothing_are_invalid_ranges(tool: Tool[Recover], ranges: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidRange):
        await tool.call(LOCAL, arguments(*ranges))


@pytest.mark.parametrize("unknown", ["prn_zzzzzzzzzzzzzzzz", "nonsense", "", "⟦PRUNÉ: prune_id=prn_0123456789abcdef⟧"])
async def test_an_unknown_id_is_told_to_be_unknown(tool: Tool[Recover], unknown: str) -> None:
    with pytest.raises(PruneIdNotFound) as refused:
        await tool.call(LOCAL, arguments((1, 1), prune_id=unknown))
    assert refused.value.reason == "unknown"


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("prune_id", arguments((1, 1), prune_id=7)),
        ("ranges", arguments() | {"ranges": {"start_line": 1, "end_line": 2}}),
        ("ranges.0", arguments() | {"ranges": [[1, 2]]}),
        ("ranges.0.start_line", arguments((True, 2))),
        ("ranges.1.end_line", arguments((1, 2), (1, "2"))),
        ("ranges.0.end_line", arguments((1, 2.5))),
        ("ranges.0.end_line", arguments() | {"ranges": [{"start_line": 1}]}),
        ("ranges.0.step", arguments() | {"ranges": [{"start_line": 1, "end_line": 1, "step": 1}]}),
        ("include_line_numbers", arguments((1, 1), numbers="yes")),
        ("prune_id", {"ranges": []}),
        ("more", arguments((1, 1)) | {"more": 1}),
    ],
)
async def test_a_wrong_argument_is_named(tool: Tool[Recover], field: str, given: JsonObject) -> None:
    with pytest.raises(InvalidParams) as refused:
        await tool.call(LOCAL, given)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"prune_id": ID, "ranges": [[3, 4]]}, "ranges.0: must be an object with start_line, end_line"),
        (
            {"prune_id": ID, "ranges": [{"start": 1, "end_line": 2, "start_line": 1}]},
            "ranges.0.start: there is no such field: did you mean start_line?",
        ),
        ({"prune_id": ID, "rangs": []}, "rangs: there is no such field: did you mean ranges?"),
    ],
)
async def test_a_wrong_argument_is_explained_by_what_would_be_accepted(
    tool: Tool[Recover], given: JsonObject, told: str
) -> None:
    with pytest.raises(InvalidParams) as refused:
        await tool.call(LOCAL, given)
    assert str(refused.value) == told


async def test_without_ranges_the_whole_text_comes_back(tool: Tool[Recover]) -> None:
    answer = (await tool.call(LOCAL, {"prune_id": ID})).structured
    assert answer == {
        "raw_text": TEXT,
        "metadata": {
            "prune_id": ID,
            "ranges": [{"start_line": 1, "end_line": 5}],
            "line_numbering": "original",
            "numbering": "lines",
        },
    }


async def test_a_whole_number_may_be_written_as_a_float(tool: Tool[Recover]) -> None:
    answer = (await tool.call(LOCAL, arguments((1.0, 1.0)))).structured
    assert answer and answer["raw_text"] == "one"


@pytest.mark.parametrize(
    "given",
    [
        {"id": ID, "start_line": 1, "end_line": 2},
        {"prune_id": ID, "start_line": 1, "end_line": 2, "include_line_numbers": False},
        {"id": ID, "ranges": [{"start_line": 1, "end_line": 2}]},
    ],
)
async def test_what_a_model_would_write_is_accepted(tool: Tool[Recover], given: JsonObject) -> None:
    answer = (await tool.call(LOCAL, given)).structured
    assert answer and answer["raw_text"] == "one\ntwo \r"
