"""Bytes become text that a model can read, and no byte is lost on the way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core import lines
from kimi_proxy.core.lines import common_head


def test_utf8_is_read_as_it_is_with_its_mark_and_odd_separators():
    raw = "\ufeffcafé\r\n\x0c\u2028 🙂\x00\n".encode()

    assert lines.decode(raw) == "\ufeffcafé\r\n\x0c\u2028 🙂\x00\n"


def test_only_the_line_that_is_not_utf8_is_read_as_windows_1252():
    assert lines.decode("né\n".encode() + b"caf\xe9 \x80\n" + "é".encode()) == "né\ncafé €\né"


def test_every_byte_has_a_character_of_its_own():
    shown = [lines.decode(b"\xff" + bytes([byte])) for byte in range(256) if byte != 10]

    assert len(set(shown)) == 255


@given(st.binary(max_size=200))
def test_lines_read_alone_or_together_are_the_same(raw: bytes):
    assert lines.decode(raw).split("\n") == [lines.decode(line) for line in raw.split(b"\n")]


@given(st.text(max_size=50), st.integers(0, 60))
def test_a_clip_never_cuts_a_character_in_two(text: str, size: int):
    text = text.encode("utf-8", "replace").decode()
    clipped = lines.clip_utf8(text.encode(), size)

    assert len(clipped) <= size
    assert text.startswith(clipped.decode())


@given(st.binary(max_size=50), st.integers(0, 60))
def test_a_clip_of_any_bytes_is_their_start(raw: bytes, size: int):
    clipped = lines.clip_utf8(raw, size)

    assert raw.startswith(clipped)
    assert min(size, len(raw)) - len(clipped) <= 3


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-be", "utf-16-le"])
def test_a_byte_order_mark_announces_wide_characters(encoding: str):
    marked = "\ufeffa" if encoding.endswith("e") else "a"

    assert lines.wide_encoding(marked.encode(encoding)) in ("utf-16", "utf-32")
    assert not lines.is_binary(marked.encode(encoding))


def test_a_nul_without_such_a_mark_means_binary():
    assert lines.is_binary(b"GIF89a\x00\x01")
    assert not lines.is_binary(b"plain")


# What two texts begin with alike is found by halving.


@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_it_is_as_long_as_a_loop_finds_it(one: str, other: str):
    plain = next((at for at, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))

    assert common_head(one, other) == plain
