"""Shorter forms of a tool result lose nothing that the model could need."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.prune import Origin
from kimi_proxy.features.sanitizer.lossless import Earlier, lossless_form, repeats
from kimi_proxy.features.sanitizer.plan import result_of
from kimi_proxy.features.sanitizer.shorten import MIN_NUMBERED_ROWS, strip_terminal, thin_numbers

CODE = [f"    value_{n} = compute({n}, {n * n})  # a line of some length" for n in range(1, 61)]


def numbered(lines: list[str], arrow: str = "→", first: int = 1) -> list[str]:
    return [f"{n:6}{arrow}{line}" for n, line in enumerate(lines, first)]


def test_a_numbered_file_keeps_its_numbers_on_every_tenth_row():
    thinned = thin_numbers(numbered(CODE))

    assert [row for row, line in enumerate(thinned, 1) if "→" in line] == [1, 10, 20, 30, 40, 50, 60]
    assert thinned[1] == CODE[1]
    assert thinned[9] == f"{10:6}→{CODE[9]}"


def test_a_window_in_the_middle_of_a_file_begins_with_its_number():
    thinned = thin_numbers(numbered(CODE, "\t", first=137))

    assert thinned[0] == f"{137:6}\t{CODE[0]}"
    assert thinned[3] == f"{140:6}\t{CODE[3]}"
    assert thinned[4] == CODE[4]


def test_the_indentation_of_a_row_is_not_taken_for_the_space_after_its_number():
    mixed = ["def compute():", *CODE]

    assert thin_numbers(numbered(mixed, ":"))[1] == mixed[1]
    assert thin_numbers(numbered(mixed, ": "))[1] == mixed[1]
    assert thin_numbers(rows := numbered(CODE, ":")) is rows  # a space of the tool, or one of the file's


def test_few_rows_and_rows_that_do_not_count_up_are_left_alone():
    few = numbered(CODE[: MIN_NUMBERED_ROWS - 2])
    hits = [f"{n * 7}: {line}" for n, line in enumerate(CODE, 1)]

    assert thin_numbers(few) is few
    assert thin_numbers(hits) is hits


def test_a_row_whose_own_text_reads_as_numbered_keeps_its_number():
    lines = list(CODE)
    lines[14] = "99: a text that begins like a number"

    assert thin_numbers(numbered(lines))[14] == f"{15:6}→99: a text that begins like a number"


def test_every_number_can_be_told_from_what_is_left():
    lines = [*numbered(CODE), "", "<system-reminder>not a row</system-reminder>", *numbered(CODE[:30], first=200)]

    assert restored(list(thin_numbers(lines))) == lines


def restored(thinned: list[str]) -> list[str]:
    """What a reader knows: a row without a number has the one after the row before it."""
    rows: list[str] = []
    number = None
    for line in thinned:
        match = re.match(r" {0,8}(\d+)→", line)
        if match:
            number = int(match[1])
        elif number is not None and line and not line.startswith("<"):
            number += 1
            line = f"{number:6}→{line}"
        else:
            number = None
        rows.append(line)
    return rows


def test_what_a_terminal_shows_in_the_end_is_all_that_stays():
    text = "\x1b[31mFAILED\x1b[0m test_a          \na line of a file  \n10%\r50%\r100% done\r\n\x1b]8;;http://x\x07link\x1b]8;;\x07\tend\n"

    assert strip_terminal(text) == "FAILED test_a\na line of a file  \n100% done\r\nlink\tend\n"


def test_a_text_without_escape_codes_stays_as_it_is():
    text = "plain\n  indented\n\nend"

    assert strip_terminal(text) is text


@given(st.text(alphabet="\x1b[]0;m\r\n \ta\x07\\", max_size=300))
def test_stripping_twice_is_stripping_once_and_never_longer(text: str):
    once = strip_terminal(text)

    assert len(once) <= len(text)
    assert once.count("\n") == text.count("\n")


def shown(lines: list[str], tool: str = "Read", command: str = "", earlier: list[str] | None = None) -> str | None:
    output = result_of(Origin(tool, path="" if command else "/src/app.py", command=command), "\n".join(lines))
    before = [Earlier("Read /src/app.py", earlier)] if earlier else []
    form = lossless_form(output, before, b"seed")
    if form is not None:
        assert {hidden.text for hidden in form.hidden} == {output.text}
    return form and form.shown


def test_an_over_long_row_is_not_called_redundant():
    assert shown(["short", "x" * 9000, "short"], command="cat bundle.js") is None


def test_json_with_over_long_rows_stays_as_it_is():
    assert shown(['{"a": "' + "x" * 9000 + '"}'], command="cat a.json") is None


def test_what_changed_in_a_numbered_file_has_few_numbers_and_pointers_around_it():
    again = [*CODE[:30], "    changed = True", *[f"    new_{n} = other({n})  # not seen before" for n in range(40)]]

    text = shown(numbered([*again, *CODE[30:]]), earlier=CODE)

    assert text is not None
    rows = text.split("\n")
    assert "lignes 1-30" in rows[0] and "lignes 72-101" in rows[-1]
    assert rows[1] == f"{31:6}→    changed = True"  # the first row below a gap can be counted from
    assert rows[2] == "    new_0 = other(0)  # not seen before"
    assert sum("→" in row for row in rows) == 1 + 4  # rows 40, 50, 60, 70


def test_a_file_read_again_after_an_edit_shows_what_changed():
    again = [*CODE[:30], "    changed = True", *CODE[31:]]

    cuts = repeats(again, CODE, "app.py")

    assert [(cut.start, cut.end) for cut in cuts] == [(1, 30), (32, 60)]
    assert {cut.reason for cut in cuts} == {"déjà montré plus haut : app.py"}


def test_short_runs_and_other_texts_are_no_repeats():
    other = [f"another line {n} with words of its own" for n in range(60)]

    assert repeats(other, CODE, "") == ()
    assert repeats([*other, *CODE[:4], *other], CODE, "") == ()


@given(st.lists(st.sampled_from(CODE), max_size=80), st.lists(st.sampled_from(CODE), max_size=80))
def test_a_repeat_stands_in_the_earlier_text_line_for_line(lines: list[str], earlier: list[str]):
    joined = "\n".join(["", *earlier, ""])
    ends = 0
    for cut in repeats(lines, earlier, ""):
        assert cut.start > ends
        assert "\n".join(["", *lines[cut.start - 1 : cut.end], ""]) in joined
        ends = cut.end
