"""Line ranges as people type them."""

import pytest

from kimi_proxy.cli.pruning import parse
from kimi_proxy.core.errors import InvalidRange


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("7", ((7, 7),)),
        ("10-20", ((10, 20),)),
        ("10-20,40-60", ((10, 20), (40, 60))),
        ("40-60, 10", ((40, 60), (10, 10))),
        ("60-", ((60, 99),)),
        ("60-500", ((60, 99),)),
        ("500-600", ((500, 500),)),
    ],
)
def test_ranges_keep_the_order_they_are_written_in(text: str, ranges: tuple[tuple[int, int], ...]):
    assert parse(text, last=99) == ranges


@pytest.mark.parametrize("text", ["", "x", "-5", "20-10", "0-3", "1,,2", "1-2-3", "1..2", "٣", "9" * 30])
def test_what_is_no_range_is_refused_with_an_example(text: str):
    with pytest.raises(InvalidRange, match="is not a line range"):
        parse(text, last=99)
