"""What a model must have read in lines that were cut: no more than that can be shown, and no less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core.chat import Wire
from kimi_proxy.lab.replay import needed_passages, written_after

ASKED = (User("why?"), Assistant("", (Call("c1"),)))
TEXT = "first line of the output\nthe cause is in src/parser/tokens.py line 7\nanother line of the output\nlast"
LEFT = "first line of the output\n[cut]\nlast"


def passages(written: str, text: str = TEXT, left: str = LEFT, wire: Wire = Wire.CHAT) -> list[str]:
    came, left_over = (request(wire, (*ASKED, Result("c1", shown))) for shown in (text, left))
    return needed_passages(came, left_over, written)


CUT = "the cause is in src/parser/tokens.py line 7\nanother line of the output"


@pytest.mark.parametrize("wire", list(Wire))
@pytest.mark.parametrize(
    "written",
    [
        "I read: the cause is in src/parser/tokens.py line 7.",
        '{"path": "src/parser/tokens.py"}',
        "as it says, another line of the output",
    ],
)
def test_a_quoted_line_or_word_needs_all_that_was_cut_around_it(written: str, wire: Wire):
    assert passages(written, wire=wire) == [CUT]


@pytest.mark.parametrize("written", ["", "first line of the output", "I see.", "the cause", "tokens.py"])
def test_what_is_shown_or_says_little_needs_nothing(written: str):
    assert passages(written) == []


def test_a_word_that_stands_elsewhere_too_needs_nothing():
    assert passages('{"path": "src/parser/tokens.py"}', left=f"{LEFT}\nsee src/parser/tokens.py") == []


def test_a_request_that_was_not_changed_needs_nothing():
    assert passages("another line of the output", left=TEXT) == []


def test_numbers_before_lines_hide_no_quote():
    numbered = "     1\tdef parse(text):\n     2\t    return tokens_of(text)\n     3\tend"

    assert passages("    return tokens_of(text)", numbered, "     1\tdef parse(text):\n[cut]") != []


def test_a_quote_in_the_arguments_of_a_call_may_be_escaped():
    cut = 'raise ValueError("not so")\n'

    assert passages('{"old": "raise ValueError(\\"not so\\")\\n"}', f"a\n{cut}z", "a\n[cut]\nz") == [cut.strip()]


def test_the_answer_is_what_the_next_request_adds_of_the_model():
    items: list[Item] = [User("why?")]
    said = (*items, Assistant("so", (Call("c1", "bash", {"command": "ls"}),)), Result("c1", "x"), User("and?"))
    for wire in Wire:
        written = written_after(request(wire, items), request(wire, said))
        assert "so" in written
        assert "ls" in written
        assert "and?" not in written
    assert written_after(request(Wire.CHAT, items), None) == ""


@given(
    st.lists(st.sampled_from(["alpha beta gamma delta epsilon", "zeta eta theta iota kappa", "x", ""]), max_size=6),
    st.data(),
)
def test_nothing_is_needed_that_is_not_in_what_came(lines: list[str], data: st.DataObject):
    left = data.draw(st.lists(st.sampled_from(lines), max_size=4)) if lines else []
    found = passages("alpha beta gamma delta epsilon", "\n".join(lines), "\n".join(left))

    assert all(passage in "\n".join(lines) for passage in found)
    assert not found or "alpha beta gamma delta epsilon" not in left
