"""LineSplitter from slices of any size."""

import asyncio
import os
import pty
import subprocess
import sys
from io import FileIO

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.api.mcp.stdio import LineReader, LineSplitter


def cut(slices: list[bytes], limit: int) -> list[bytes | None]:
    lines = LineSplitter(limit)
    found = [line for data in slices for line in lines.feed(data)]
    return [*found, *lines.end()]


@given(st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\x00", b"\n"))), st.integers(0, 8))
def test_the_size_of_the_slices_changes_nothing(slices: list[bytes], limit: int):
    whole = b"".join(slices)
    expected = whole.split(b"\n")
    if expected[-1] == b"":
        expected.pop()

    assert cut(slices, limit) == [line if len(line) <= limit else None for line in expected]


def test_every_cut_of_a_stream_gives_the_same_lines():
    stream = b'{"a":1}\r\n\n{"b":"\xc3\xa9"}\nlast'
    for i in range(len(stream)):
        for j in range(i, len(stream)):
            assert cut([stream[:i], stream[i:j], stream[j:]], 100) == [b'{"a":1}\r', b"", b'{"b":"\xc3\xa9"}', b"last"]


def test_a_line_that_is_too_long_is_not_collected():
    lines = LineSplitter(10)
    for _ in range(1000):
        assert list(lines.feed(b"x" * 100_000)) == []
    assert list(lines.feed(b"x\nshort\n")) == [None, b"short"]


def test_the_wire_carries_nothing_that_others_print():
    program = """
import os
from io import FileIO
from kimi_proxy.api.mcp.stdio import redirect_streams
with redirect_streams(FileIO(0, closefd=False), FileIO(1, "w", closefd=False)) as (stdin, stdout):
    print("printed noise")
    os.write(1, b"written noise")
    os.system("echo echoed noise")
    stdout.write(stdin.read(100).upper())
print("after")
"""
    done = subprocess.run([sys.executable, "-c", program], input=b"wire", capture_output=True, timeout=60)

    assert done.stdout == b"WIREafter\n"
    assert all(noise in done.stderr for noise in (b"printed noise", b"written noise", b"echoed noise"))


async def heard(source: FileIO) -> list[bytes | None]:
    return [line async for line in LineReader(source, 100, 10)]


async def test_a_pipe_that_does_not_block_is_waited_for_and_not_taken_for_ended():
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    with FileIO(reader, "rb") as source:
        listening = asyncio.create_task(heard(source))
        await asyncio.sleep(0.05)
        os.write(writer, b"late\n")
        os.close(writer)

        assert await asyncio.wait_for(listening, 60) == [b"late"]


async def test_a_terminal_that_was_closed_has_ended():
    """Linux says EIO there, and nothing at all to whoever waits for the end."""
    master, slave = pty.openpty()
    with FileIO(slave, "rb") as source:
        os.write(master, b"last\n")
        lines = aiter(LineReader(source, 100, 10))
        async with asyncio.timeout(60):
            first = await anext(lines)
            os.close(master)
            rest = [line async for line in lines]

    assert (first, rest) == (b"last", [])
