"""The tool that reads what a marker hides."""

import pytest
from tests.support.read_back import read_from

from kimi_proxy.core.errors import InvalidParams, InvalidRange
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features import recovery
from kimi_proxy.features.tool import validate

TEXT = "one\ntwo\r\n\x0cthree\n\u2028four 😀"


def recover(**arguments: object) -> str:
    return read_from(TEXT, {"id": "msk_1", **arguments})


def test_without_a_range_everything_comes_back_byte_for_byte():
    assert recover() == TEXT


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"start_line": 2, "end_line": 2}, "two\r"),
        ({"start_line": 3}, "\x0cthree\n\u2028four 😀"),
        ({"end_line": 2}, "one\ntwo\r"),
        ({"start_line": 4, "end_line": 99}, "\u2028four 😀"),
        ({"start_char": 4, "end_char": 7}, "two"),
        ({"start_char": 4.0}, TEXT[4:]),
        ({"end_char": 3}, "one"),
        ({"start_char": 0, "end_char": 10_000}, TEXT),
        ({"start_char": len(TEXT)}, ""),
    ],
)
def test_a_part_is_chosen_by_lines_or_by_characters(arguments: JsonObject, expected: str):
    assert recover(**arguments) == expected


@pytest.mark.parametrize(
    ("id", "arguments", "expected"),
    [
        ("prn_1", {"start": 2, "end": 2}, "two\r"),
        ("prn_1", {"end": 1}, "one"),
        ("msk_1", {"start": 4, "end": 7}, "two"),
        ("msk_1", {"start": 4}, TEXT[4:]),
    ],
)
def test_a_start_and_an_end_count_what_the_marker_counts(id: str, arguments: JsonObject, expected: str):
    assert recover(**arguments, id=id) == expected


@pytest.mark.parametrize(
    "arguments",
    [
        {"start_line": 0},
        {"start": -1},
        {"start": 1, "start_line": 1},
        {"start_line": 3, "end_line": 2},
        {"start_line": 5},
        {"start_char": -1},
        {"start_char": 5, "end_char": 4},
        {"start_char": len(TEXT) + 1},
        {"start_line": 1, "end_char": 4},
    ],
)
def test_ranges_that_mean_nothing_are_refused(arguments: JsonObject):
    with pytest.raises(InvalidRange):
        recover(**arguments)


@pytest.mark.parametrize("name", ["prune_id", "mask_id"])
def test_the_id_may_go_by_the_name_that_the_marker_gives_it(name: str):
    assert validate(recovery.Recover, {name: "msk_1"}).id == "msk_1"


def test_arguments_that_are_wrong_are_named():
    with pytest.raises(InvalidParams, match="extra"):
        recover(extra=1)
    with pytest.raises(InvalidParams, match="id"):
        validate(recovery.Recover, {})
