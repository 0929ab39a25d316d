"""Commands that are made of functions."""

from pathlib import Path
from typing import Annotated, Literal

import click
import pytest
from click.testing import CliRunner

from kimi_proxy.cli.commands import Argument, CommandGroup, Option

seen: list[dict[str, object]] = []


def about(context: click.Context, loud: Annotated[bool, Option("--loud", help="Say more.")] = False) -> None:
    """Do things.

    Example: demo make a b
    """
    seen.append({"loud": loud, "command": context.invoked_subcommand})


def make(
    what: Annotated[list[str], Argument(metavar="WHAT", help="What to make.")],
    place: Annotated[Path, Argument(metavar="PLACE", help="Where.")] = Path(),
    kind: Annotated[Literal["big", "small"], Option(help="How large.")] = "big",
    times: Annotated[int, Option("--times", "-n", min=1, max=9, help="How often.")] = 2,
    share: Annotated[float, Option(min=0, max=1, help="How much.")] = 0.5,
    label: Annotated[list[str] | None, Option(metavar="NAME", help="May be repeated.")] = None,
    near: Annotated[bool | None, Option("--near/--far", help="How far.")] = None,
    folder: Annotated[Path | None, Option(exists=True, file_okay=False, help="A folder.")] = None,
) -> None:
    """Make something. Then rest."""
    seen.append(locals())


def interrupted() -> None:
    """Wait."""
    raise KeyboardInterrupt


@pytest.fixture
def demo() -> CommandGroup:
    seen.clear()
    group = CommandGroup("demo", about, alone=True)
    group.add(make)
    group.add(interrupted, "wait-a-while")
    return group


def test_values_have_the_types_of_the_parameters(demo: CommandGroup, tmp_path: Path):
    line = ["make", "a", "b", "here", "--kind=small", "-n3", "--share", "1", "--label", "x", "--label", "y", "--far"]
    done = CliRunner().invoke(demo, [*line, "--folder", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert seen == [
        {"loud": False, "command": "make"},
        {
            "what": ["a", "b"],
            "place": Path("here"),
            "kind": "small",
            "times": 3,
            "share": 1.0,
            "label": ["x", "y"],
            "near": False,
            "folder": tmp_path,
        },
    ]


def test_what_is_left_out_has_the_default_of_the_function(demo: CommandGroup):
    CliRunner().invoke(demo, ["--loud"])

    assert seen == [{"loud": True, "command": None}]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (["make"], "Missing argument 'WHAT...'"),
        (["make", "a", "--times"], "Option '--times' requires an argument"),
        (["make", "a", "--label"], "Option '--label' requires an argument"),
        (["make", "a", "--times", "10"], "10 is not in the range 1<=x<=9"),
        (["make", "a", "--times", "many"], "'many' is not a valid integer"),
        (["make", "a", "--share", "-1"], "-1.0 is not in the range 0<=x<=1"),
        (["make", "a", "--kind", "tall"], "'tall' is not one of 'big', 'small'"),
        (["make", "a", "--folder", "/does/not/exist"], "'/does/not/exist' does not exist"),
        (["make", "a", "--colour"], "No such option"),
        (["mak"], "Did you mean 'make'?"),
    ],
)
def test_what_cannot_be_read_is_refused_in_words(demo: CommandGroup, line: list[str], complaint: str):
    done = CliRunner().invoke(demo, line)

    assert done.exit_code == 2
    assert complaint in done.output
    assert len(seen) <= 1


def test_the_help_shows_arguments_options_and_defaults(demo: CommandGroup):
    shown = CliRunner().invoke(demo, ["make", "-h"]).output

    assert "Usage: demo make [OPTIONS] WHAT... [PLACE]" in shown
    for row in ("Where.  [default: .]", "[big|small]", "[default: 2; 1<=x<=9]", "--near / --far", "--label NAME"):
        assert row in shown


def test_commands_are_listed_in_the_order_in_which_they_were_added(demo: CommandGroup):
    inner = CommandGroup("inner", help="More of them.")
    inner.add(make, "again")
    demo.add_group(inner)
    shown = CliRunner().invoke(demo, ["--help"]).output

    assert [line.split()[0] for line in shown.partition("Commands:\n")[2].splitlines()] == [
        "make",
        "wait-a-while",
        "inner",
    ]
    assert CliRunner().invoke(demo, ["inner", "again", "a", "b"]).exit_code == 0
    assert CliRunner().invoke(demo, ["inner"]).exit_code == 2


def test_ctrl_c_ends_with_the_code_that_shells_know(demo: CommandGroup):
    assert CliRunner().invoke(demo, ["wait-a-while"]).exit_code == 130


def test_a_type_that_cannot_be_read_is_a_fault_of_ours():
    group = CommandGroup("demo")

    def odd(what: Annotated[bytes, Argument()]) -> None: ...

    group.add(odd)
    with pytest.raises(TypeError, match="a command cannot read <class 'bytes'>"):
        group.get_command(click.Context(group), "odd")
