"""Lines come out once they are complete, and nothing that is written can fill the memory."""

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.addons.log_watcher.log_watcher import LineFeed


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=8), st.data())
def test_the_same_lines_come_out_however_the_bytes_are_cut(lines: list[bytes], data: st.DataObject):
    written = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6)))
    feed = LineFeed()

    pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]

    told = [line for piece in pieces for line in feed.feed(piece)]
    assert told == [line.decode("utf-8", "replace").rstrip("\r") for line in lines]


def test_half_a_line_waits_for_the_rest():
    feed = LineFeed()

    assert (feed.feed(b"one\ntw"), feed.feed(b"o\n")) == (["one"], ["two"])


def test_a_line_that_is_too_long_is_let_go_and_the_next_is_not():
    feed = LineFeed(max_line_bytes=10)

    told = feed.feed(b"x" * 8) + feed.feed(b"x" * 8) + feed.feed(b"x" * 1000) + feed.feed(b"x\nnext\n")

    assert told == ["next"]


def test_a_line_of_just_the_greatest_length_is_told():
    assert LineFeed(max_line_bytes=4).feed(b"four\nfiver\nok\n") == ["four", "ok"]
