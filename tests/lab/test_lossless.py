"""Shortening that loses nothing which the conversation does not show elsewhere."""

from kimi_proxy.lab.lossless import ShownRows, shorten

ROWS = [f"row {at} of a file that is read more than once, with some words" for at in range(1, 31)]


def test_rows_that_an_earlier_output_shows_become_a_pointer():
    shown = ShownRows()
    first = shorten("\n".join(ROWS), 0, shown)
    second = shorten("\n".join(["a new beginning", *ROWS[5:25], "", "a new end"]), 1, shown)

    assert first.text == "\n".join(ROWS)
    assert second.text == "a new beginning\n[20 lines as in result 1 above]\n\na new end"
    assert second.targets == {0}


def test_a_pointer_goes_over_empty_rows_and_rows_that_occur_twice():
    shown = ShownRows()
    text = "\n".join([*ROWS[:5], "", "}", "", *ROWS[5:10], "", "}"])
    shorten(text, 0, shown)

    assert shorten(text, 1, shown).text == "[15 lines as in result 1 above]"


def test_a_few_rows_are_not_worth_a_pointer():
    shown = ShownRows()
    shorten("\n".join(ROWS), 0, shown)

    assert shorten("\n".join(ROWS[:5]), 1, shown).text == "\n".join(ROWS[:5])


def test_what_has_left_the_conversation_is_not_pointed_to():
    shown = ShownRows()
    shorten("\n".join(ROWS), 0, shown)
    shown.forget()

    assert shorten("\n".join(ROWS), 1, shown).targets == frozenset()


def test_numbers_stay_on_every_tenth_row_and_the_first():
    numbered = [f"{at:6d}→{row}" for at, row in enumerate(ROWS)]

    lines = shorten("\n".join(numbered), 0, ShownRows()).text.split("\n")

    assert [at for at, line in enumerate(lines) if "→" in line] == [0, 10, 20]
    assert lines[1] == ROWS[1]


def test_rows_too_long_to_read_keep_their_beginning_and_end():
    row = "x" * 5000

    shorter = shorten(f"short\n{row}", 0, ShownRows())

    assert shorter.text == f"short\n{'x' * 300}[… 4600 characters …]{'x' * 100}"
    assert shorter.cut_rows == {row}


def test_escape_codes_and_blanks_at_the_end_go():
    assert shorten("\x1b[31mred\x1b[0m   \n", 0, ShownRows()).text == "red\n"
    assert shorten("", 0, ShownRows()).text == ""
