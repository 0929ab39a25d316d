"""Our block in somebody's Markdown."""

import pytest

from kimi_proxy.connect.client_files import BEGIN, END, put_block, remove_block
from kimi_proxy.core.errors import FileRefused

OURS = f"{BEGIN}\nours\n{END}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", OURS),
        ("# Mine\n", f"# Mine\n\n{OURS}"),
        ("# Mine", f"# Mine\n\n{OURS}"),
        (f"# Mine\n\n{BEGIN}\nold\nold\n{END}\n\nmore\n", f"# Mine\n\n{OURS}\nmore\n"),
    ],
)
def test_the_block_is_put_once(before: str, after: str):
    assert put_block(before, "ours\n") == after


@pytest.mark.parametrize(
    ("before", "after"),
    [(f"# Mine\n\n{OURS}", "# Mine\n"), (f"# Mine\n\n{OURS}\nmore\n", "# Mine\n\nmore\n"), (OURS, ""), ("x", "x")],
)
def test_the_block_goes_without_a_trace(before: str, after: str):
    assert remove_block(before) == after


@pytest.mark.parametrize("text", [BEGIN, END, END + BEGIN, OURS + OURS])
def test_marks_that_do_not_match_are_refused(text: str):
    with pytest.raises(FileRefused, match="once each, in this order"):
        put_block(text, "ours")
