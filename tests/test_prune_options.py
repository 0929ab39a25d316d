"""The options of `prune` mean the same with and without click."""

import pytest

from kimi_proxy.cli.pruning import prune
from kimi_proxy.prune_options import read_options

GOAL = ["--goal", "why?"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.log", "--goal", "why?"],
        ["--goal=why?", "a.log"],
        ["-g", "why?", "a.log"],
        ["-gwhy?", "a.log"],
        ["a=b.log", "--goal", "a=b"],
        ["-", *GOAL, "--json"],
        [*GOAL, "a log"],
        ["a.log", *GOAL, "--source-type", "code", "--max-prune-ratio=0.5", "--min-keep-lines", "3", "--timeout-ms=1"],
        ["a.log", *GOAL, "--annotate", "--no-markers"],
        ["a.log", *GOAL, "--annotate", "--no-annotate"],
        ["a.log", *GOAL, "--goal", "and when?"],
    ],
    ids=" ".join,
)
def test_both_read_the_same(arguments: list[str]):
    read = prune.make_context("prune", list(arguments)).params

    as_json = read.pop("as_json")
    assert read_options(arguments) == {**read, "file": str(read["file"]), "json": as_json}


@pytest.mark.parametrize(
    "arguments",
    [
        ["a.log"],
        ["a.log", "b.log", *GOAL],
        ["a.log", *GOAL, "--unheard-of"],
        ["a.log", *GOAL, "--source-type", "poems"],
        ["a.log", *GOAL, "--max-prune-ratio", "half"],
        ["a.log", *GOAL, "--min-keep", "3"],
        ["a.log", "--goal"],
        ["a.log", *GOAL, "--help"],
        ["a.log", *GOAL, "--annotate=1"],
        [*GOAL, "--", "--odd-name"],
    ],
    ids=" ".join,
)
def test_what_is_wrong_is_left_to_the_command_line(arguments: list[str]):
    with pytest.raises(ValueError, match=r"\w"):
        read_options(arguments)
