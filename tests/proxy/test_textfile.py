"""Lines of files, whatever their size and encoding."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core import lines as charset
from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.proxy import files
from kimi_proxy.proxy.files import Excerpt, excerpt

MANY = 10**9


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def lines_of(raw: bytes, tmp_path: Path, start: int, end: int | None, limit: int = MANY) -> Excerpt:
    (tmp_path / "file").write_bytes(raw)
    with opened(tmp_path / "file") as fd:
        return excerpt(fd, start, end, limit)


def test_a_whole_file_comes_back_exactly(tmp_path: Path):
    raw = "a\r\nb\x0c\u2028\n\n  é🙂".encode()

    assert lines_of(raw, tmp_path, 1, None) == Excerpt(raw.decode(), 1, 4, False, True)


def test_a_window_holds_its_lines_and_no_newline_after_them(tmp_path: Path):
    assert lines_of(b"1\n2\n3\n4\n5", tmp_path, 2, 4) == Excerpt("2\n3\n4", 2, 4, False, False)


def test_empty_lines_are_lines_of_a_window(tmp_path: Path):
    assert lines_of(b"1\n\n\n\n5", tmp_path, 2, 3) == Excerpt("\n", 2, 3, False, False)


def test_a_window_may_reach_past_the_end(tmp_path: Path):
    assert lines_of(b"1\n2\n3", tmp_path, 2, 99) == Excerpt("2\n3", 2, 3, False, True)


def test_a_window_that_begins_past_the_end_says_how_many_lines_there_are(tmp_path: Path):
    with pytest.raises(ToolFailed, match="line 5 is past the end: the file has 3 lines"):
        lines_of(b"1\n2\n3", tmp_path, 5, 9)


def test_an_empty_file_is_empty(tmp_path: Path):
    assert lines_of(b"", tmp_path, 1, None) == Excerpt("", 1, 1, False, True)


def test_more_than_the_limit_is_cut_after_a_whole_line(tmp_path: Path):
    assert lines_of(b"111\n222\n333\n", tmp_path, 1, None, 9) == Excerpt("111\n222", 1, 2, True, False)


def test_one_line_over_the_limit_is_cut_between_two_characters(tmp_path: Path):
    found = lines_of("é".encode() * 10, tmp_path, 1, None, 5)

    assert (found.text, found.more, found.split) == ("éé", True, True)


def test_a_binary_file_is_named_as_such(tmp_path: Path):
    with pytest.raises(ToolFailed, match="binary file of 6 bytes") as refused:
        lines_of(b"\x89PNG\x00\x01", tmp_path, 1, None)

    assert refused.value.reason == "binary_file"


def test_bytes_that_only_begin_like_wide_characters_are_a_binary_file(tmp_path: Path):
    with pytest.raises(ToolFailed, match="binary file of 8 bytes") as refused:
        lines_of(b"\xff\xfe\x00\x00\xff\xff\xff\xff", tmp_path, 1, None)

    assert refused.value.reason == "binary_file"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_wide_characters_are_read_across_blocks(tmp_path: Path, encoding: str):
    text = "".join(f"ligne {n} é🙂\n" for n in range(20_000))

    assert lines_of(text.encode(encoding), tmp_path, 1, None).text == text
    assert lines_of(text.encode(encoding), tmp_path, 15_000, 15_000).text == "ligne 14999 é🙂"


def test_a_scan_can_be_stopped(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"x\n")

    def out_of_time() -> None:
        raise TimeoutError

    with opened(tmp_path / "file") as fd, pytest.raises(TimeoutError):
        excerpt(fd, 1, None, MANY, out_of_time)


@given(st.binary(max_size=60), st.integers(1, 12), st.integers(0, 12))
def test_a_window_is_what_splitting_the_whole_text_gives(raw: bytes, start: int, length: int):
    lines = charset.decode(raw).split("\n")
    scan = files._Scan(start, start + length, MANY)
    for at in range(0, len(raw), 3):  # blocks of three bytes
        if scan.feed(raw[at : at + 3]):
            break

    if start > len(lines):
        with pytest.raises(ToolFailed):
            scan.excerpt()
    else:
        assert scan.excerpt().text.split("\n") == lines[start - 1 : start + length]


def test_a_window_of_a_huge_file_is_found_without_loading_it(tmp_path: Path):
    with (tmp_path / "file").open("wb") as file:
        for _ in range(60):
            file.write(b"0123456789abcdef\n" * 100_000)  # 102 MB in all
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with opened(tmp_path / "file") as fd:
        found = excerpt(fd, 5_999_000, 5_999_001, MANY)

    assert found.text == "0123456789abcdef\n0123456789abcdef"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
