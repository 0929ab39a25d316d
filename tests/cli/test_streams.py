"""Bytes in are bytes out, and a stream that is full or closed is no reason for a traceback."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import COMMAND, PATIENCE_S, Cli

from kimi_proxy.cli.console import decode, encode


@given(st.binary())
def test_any_bytes_come_out_as_they_went_in(raw: bytes):
    assert encode(decode(raw)) == raw


@given(st.text(st.characters(exclude_categories=[])))
def test_any_text_can_be_written(text: str):
    assert isinstance(encode(text), bytes)


def test_utf8_is_read_as_text():
    assert decode("déjà vu ⟦PRUNÉ⟧\r\n".encode()) == "déjà vu ⟦PRUNÉ⟧\r\n"


def shell(cli: Cli, streams: str) -> subprocess.CompletedProcess[bytes]:
    """`kimi-proxy prune`, with its streams as a shell sets them."""
    line = f'exec "$@" {streams}'
    command = ["sh", "-c", line, "sh", *COMMAND, "prune", "--goal", "x"]
    return subprocess.run(command, capture_output=True, cwd=cli.here, env=cli.env, timeout=PATIENCE_S, input=b"a\nb\n")


needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device here is always full")
needs_shell = pytest.mark.skipif(os.name != "posix", reason="no shell that closes streams")


@needs_full
def test_a_result_that_cannot_be_written_is_told_in_one_line(cli: Cli):
    done = shell(cli, ">/dev/full")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (b"kimi-proxy: cannot write the result: No space left on device")
    assert b"Traceback" not in done.stderr


@needs_full
def test_a_remark_that_cannot_be_written_costs_nobody_the_result(cli: Cli):
    done = shell(cli, "2>/dev/full")

    assert (done.returncode, done.stdout) == (0, b"a\nb\n")


@needs_shell
def test_a_remark_never_becomes_part_of_the_result(cli: Cli):
    done = shell(cli, "2>&-")

    assert (done.returncode, done.stdout) == (0, b"a\nb\n")


@needs_shell
@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [("<&-", 2, b"standard input is closed"), (">&-", 1, b"standard output is closed")],
)
def test_a_closed_stream_is_named(cli: Cli, streams: str, code: int, said: bytes):
    done = shell(cli, streams)

    assert done.returncode == code
    assert said in done.stderr
    assert b"Traceback" not in done.stderr
