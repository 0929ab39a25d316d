"""`read`: whole files as they are, windows with their numbers, and less with a question."""

import os
import re
from pathlib import Path

import pytest
from tests.support.fakes import MemoryOriginals
from tests.support.services.tools.toolbox import toolbox

from kimi_proxy.core import tokens
from kimi_proxy.core.errors import InvalidParams, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import read as read_marker

CODE = "\n\n".join(
    f'def function_{n}(value):\n    """Does thing number {n}."""\n    result = value * {n}\n    return result'
    for n in range(120)
).replace('"""Does thing number 57."""', '"""Parses the retry budget of a request."""')
QUESTION = "How is the retry budget of a request parsed?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "lines.txt").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    (place / "code.py").write_text(CODE)
    return place


async def text_of(folder: Path, **arguments: JsonValue) -> str:
    async with toolbox(folder) as box:
        return (await box.call("read", **arguments)).text


async def test_a_whole_file_comes_as_it_is(folder: Path):
    raw = "\ufefftab\there\r\nform\x0cfeed\u2028 \ud7ff🙂\n\nno newline at the end"
    (folder / "odd.txt").write_bytes(raw.encode())

    assert await text_of(folder, file_path="odd.txt") == raw


@pytest.mark.parametrize(
    ("arguments", "first", "last"),
    [
        ({"start_line": 3, "end_line": 5}, 3, 5),
        ({"start_line": 99}, 99, 100),
        ({"end_line": 2}, 1, 2),
        ({"start_line": 98, "end_line": 5000}, 98, 100),
        ({"around_line": 50, "radius": 0}, 50, 50),
        ({"around_line": 2, "radius": 3}, 1, 5),
        ({"around_line": 50}, 30, 70),
        ({"start_line": 4.0, "end_line": 4.0}, 4, 4),
    ],
)
async def test_a_window_prints_the_numbers_of_its_lines(
    folder: Path, arguments: dict[str, JsonValue], first: int, last: int
):
    expected = "\n".join(f"{n}│ line {n}" for n in range(first, last + 1))

    assert await text_of(folder, file_path="lines.txt", **arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "file_path"),
        ({"file_path": 5}, "file_path"),
        ({"file_path": ""}, "file_path"),
        ({"file_path": "x", "start_line": 0}, "start_line"),
        ({"file_path": "x", "start_line": "3"}, "start_line"),
        ({"file_path": "x", "start_line": True}, "start_line"),
        ({"file_path": "x", "start_line": 5, "end_line": 4}, "end_line"),
        ({"file_path": "x", "start_line": 5, "around_line": 4}, "around_line"),
        ({"file_path": "x", "around_line": 4, "radius": 501}, "radius"),
        ({"file_path": "x", "around_line": 4, "radius": -1}, "radius"),
        ({"file_path": "x", "radius": 5}, "radius"),
        ({"file_path": "x", "context_focus_question": 5}, "context_focus_question"),
        ({"file_path": "x", "lines": 5}, "lines"),
    ],
    ids=repr,
)
async def test_a_wrong_argument_is_refused_by_name(folder: Path, arguments: dict[str, JsonValue], field: str):
    async with toolbox(folder) as box:
        with pytest.raises(InvalidParams) as refused:
            await box.call("read", **arguments)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nothing.txt", "nothing.txt does not exist in {folder}, where paths begin"),
        ("../state/store", "outside the allowed directories"),
        ("/etc/passwd", 'the user writes roots = ["/the/folder"] below [tools] in config.toml'),
        (".env", ".env is in tools.denied_names"),
        (".env.local", ".env.local is in tools.denied_names"),
        ("app/.env.production", ".env.production is in tools.denied_names"),
        (".", "is a directory"),
        ("binary", "binary: a binary file of 5 bytes"),
    ],
)
async def test_what_cannot_be_read_is_an_error_that_says_why(folder: Path, path: str, said: str):
    (folder / "binary").write_bytes(b"ELF\0\1")
    async with toolbox(folder) as box:
        answer = await box.call("read", file_path=path)

    assert answer.is_error
    assert said.replace("{folder}", str(folder)) in answer.text


async def test_a_window_past_the_end_says_how_long_the_file_is(folder: Path):
    assert "line 500 is past the end: the file has 101 lines" in await text_of(
        folder, file_path="lines.txt", start_line=500
    )


async def test_a_huge_file_is_cut_and_says_where_to_read_on(folder: Path):
    with (folder / "huge.log").open("wb") as file:
        for _ in range(100):
            file.write(b"0123456789abcdef\n" * 10_000)

    async with toolbox(folder) as box:
        answer = await box.call("read", file_path="huge.log")
        text, _, remark = answer.text.rpartition("\n")
        begin, marker, end = re.split(r"\n(⟦PRUNÉ: .*⟧)\n", text)
        middle = await box.recovered(marker.split("prune_id=")[1].split()[0])

    whole = f"{begin}\n{middle}\n{end}"
    assert set(whole.split("\n")) == {"0123456789abcdef"}
    last = whole.count("\n") + 1
    assert remark == (
        f"[kimi-proxy] cut after line {last} of a file of 17000000 bytes: read on with start_line {last + 1}"
    )


@pytest.mark.parametrize("window", [{}, {"start_line": 101}])
async def test_without_a_question_a_long_file_is_shown_by_its_ends(folder: Path, window: dict[str, JsonValue]):
    lines = [f"value_{n} = compute(value_{n - 1}, factor={n})" for n in range(1, 4001)]
    (folder / "long.py").write_text("\n".join(lines))
    async with toolbox(folder) as box:
        shown = (await box.call("read", file_path="long.py", **window)).text
        small = (await box.call("read", file_path="long.py", max_tokens=500, **window)).text
        whole = (await box.call("read", file_path="long.py", max_tokens=200_000, **window)).text
        begin, marker, end = re.split(r"\n(⟦PRUNÉ: .*⟧)\n", shown)
        middle = await box.recovered(marker.split("prune_id=")[1].split()[0])

    first = 101 if window else 1
    plain = [re.sub(r"^\d+│ ", "", text, flags=re.M) for text in (begin, end)]
    assert f"{plain[0]}\n{middle}\n{plain[1]}".split("\n") == lines[first - 1 :]
    assert re.search(r"raison=lignes (\d+)-(\d+) du fichier", marker) is not None
    assert 7000 < tokens.count(shown) < 13_000  # the numbers of a window come on top
    assert tokens.count(small) < 1000
    assert "⟦PRUNÉ" not in whole
    if window:
        assert end.split("\n")[-1].startswith("4000│ ")


async def test_a_line_that_is_longer_than_an_answer_is_shown_by_its_ends_too(folder: Path):
    (folder / "min.js").write_text("é" + "x=1;" * 500_000)
    async with toolbox(folder) as box:
        shown = (await box.call("read", file_path="min.js")).text

    assert tokens.count(shown) < 9000


@pytest.mark.parametrize("illness", [StoreUnavailable("the disk is full"), ValueError("a bug of ours")])
async def test_without_a_store_a_long_file_goes_out_whole(folder: Path, illness: Exception):
    store = MemoryOriginals()
    store.illness = illness
    text = "".join(f"line {n} of a long file\n" for n in range(5000))
    (folder / "long.txt").write_text(text)
    async with toolbox(folder, store) as box:
        assert (await box.call("read", file_path="long.txt")).text == text
        window = (await box.call("read", file_path="long.txt", start_line=1, end_line=4000)).text

    assert window.startswith("1│ line 0 of a long file\n2│ ") and window.count("\n") == 3999


async def test_a_line_in_another_encoding_is_readable(folder: Path):
    (folder / "mixed.txt").write_bytes("né\n".encode() + b"caf\xe9\n" + "é".encode())
    (folder / "wide.txt").write_bytes("wide é\n".encode("utf-16"))

    assert await text_of(folder, file_path="mixed.txt") == "né\ncafé\né"
    assert await text_of(folder, file_path="wide.txt") == "wide é\n"


async def test_with_a_question_the_answer_stays_and_the_rest_can_be_recovered(folder: Path):
    async with toolbox(folder) as box:
        answer = await box.call("read", file_path="code.py", context_focus_question=QUESTION)
        pruning = answer.meta["pruning"]
        assert isinstance(pruning, dict)
        recovered = await box.recovered(str(pruning["prune_id"]))

    assert "retry budget" in answer.text
    assert pruning["applied"] is True
    assert len(answer.text) < len(CODE) / 2
    assert recovered == CODE
    assert f'prune_id "{pruning["prune_id"]}"' in answer.text.split("\n")[-1]


async def test_every_line_of_a_pruned_window_has_its_own_number(folder: Path):
    lines = CODE.split("\n")
    async with toolbox(folder) as box:
        answer = await box.call(
            "read", file_path="code.py", start_line=101, end_line=500, context_focus_question=QUESTION
        )
        *shown, _ = answer.text.split("\n")
        markers = [marker for line in shown if (marker := read_marker(line))]
        assert markers
        for marker in markers:
            hidden = await box.recovered(marker.prune_id, marker.start, marker.end)
            assert hidden == "\n".join(lines[100 + marker.start - 1 : 100 + marker.end])

    for line in shown:
        if read_marker(line) is None:
            number, _, content = line.partition("│ ")
            assert lines[int(number) - 1] == content


async def test_with_the_tools_switched_off_nothing_is_pruned(folder: Path):
    async with toolbox(folder, JEEVES_MCP_PRUNER_ENABLED="false") as box:
        answer = await box.call("read", file_path="code.py", context_focus_question=QUESTION)

    assert answer.text.startswith(CODE)
    assert answer.meta["pruning"] == {"attempted": False, "applied": False, "reason": "disabled_or_unconfigured"}


async def test_the_same_question_gets_the_same_answer(folder: Path):
    async with toolbox(folder) as box:
        answers = [(await box.call("read", file_path="code.py", context_focus_question=QUESTION)).text for _ in "ab"]

    assert answers[0] == answers[1]


async def test_relative_paths_begin_at_the_working_directory_and_not_at_ours(folder: Path):
    assert os.getcwd() != str(folder)  # noqa: PTH109
    assert "line 1\n" in await text_of(folder, file_path="./lines.txt")


@pytest.mark.parametrize("question", [None, QUESTION])
async def test_a_window_that_is_one_blank_line_shows_its_number(folder: Path, question: str | None):
    (folder / "gaps.txt").write_text("one\n\nthree\n")
    (folder / "blank.txt").write_text("\n")
    asked: dict[str, JsonValue] = {"context_focus_question": question}

    assert await text_of(folder, file_path="gaps.txt", start_line=2, end_line=2, **asked) == "2│ "
    assert await text_of(folder, file_path="blank.txt", start_line=1, **asked) == "1│ "


async def test_a_window_of_nothing_shows_no_number(folder: Path):
    (folder / "empty.txt").write_text("")

    assert await text_of(folder, file_path="empty.txt", start_line=1) == ""
    assert await text_of(folder, file_path="lines.txt", start_line=101) == ""


async def test_a_line_too_long_to_be_shown_does_not_send_its_reader_behind_the_end(folder: Path):
    (folder / "bundle.js").write_text("x" * 5_000_000)

    last = (await text_of(folder, file_path="bundle.js")).split("\n")[-1]

    assert last == "[kimi-proxy] cut within line 1, which is too long to be shown whole: grep shows it around a match"
