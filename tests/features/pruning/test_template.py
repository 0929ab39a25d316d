from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.features.pruning.structure.logs import (
    count_without_numbers,
    message_of,
    messages_of,
    template,
    templates,
    without_numbers,
)


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("", ""),
        ("GET /health 200 in 12ms", "GET /health * in *"),
        ("Dec 10 06:55:46 host sshd[24200]: closed", "Dec * * host sshd[*]: closed"),
        ("user=root uid=0 from 10.0.0.1:22", "user=* uid=* from *"),
        ("block blk_-160899 at /var/lib/data/a.txt", "block blk_-* at *"),
        ("id 3f2504e0-4f89-11d3-9a0c-0305e82c3301 ok", "id * ok"),
        ("at 0xdeadbeef of deadbeefcafe", "at * of *"),
        ("\x1b[31mERROR\x1b[0m said 'no way' to \"you 2\"", "ERROR said * to *"),
        ("don't and won't stay", "don't and won't stay"),
        ("C:\\work\\app\\main.cs(12) failed", "*(*) failed"),
    ],
)
def test_what_varies_becomes_a_star(line: str, shape: str) -> None:
    assert template(line) == shape


@given(st.lists(st.text(st.characters(exclude_characters="\n"), max_size=40), max_size=20))
def test_many_templates_are_those_of_each_line(lines: list[str]) -> None:
    assert templates(lines) == [template(line) for line in lines]


@given(st.integers(), st.integers())
def test_lines_that_differ_in_numbers_alone_share_a_template(a: int, b: int) -> None:
    assert template(f"took {abs(a)} ms") == template(f"took {abs(b)} ms")


PIECES = st.sampled_from(
    [
        "2026-01-01 12:00:00",
        "[2026-01-01 12:00:00]",
        "12:00:01,123 ",
        "[2026-01-01 ab",
        " ",
        "]",
        "é٣",
        "0123",
        "\r",
        "\x1b[1m",
    ]
)


@given(st.lists(st.lists(PIECES, max_size=5).map("".join), max_size=6))
def test_many_lines_are_read_as_each_of_them_is(lines: list[str]):
    assert messages_of(lines) == [message_of(line) for line in lines]
    assert count_without_numbers(lines) == Counter(without_numbers(line) for line in lines)
