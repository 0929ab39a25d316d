"""Standard streams: results and input as exact bytes, remarks for people beside them."""

import os
import sys
from pathlib import Path
from typing import Final, TextIO

import typer

STDIN: Final = Path("-")


def decode(raw: bytes) -> str:
    """Text that `encode` turns into `raw` again, even where `raw` is not UTF-8."""
    return raw.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # A surrogate that no byte stands for came in as a JSON escape; no exact bytes exist for it.
        return text.encode("utf-8", "surrogatepass")


def read(file: Path) -> str:
    """All of `file`, or of standard input for `-`."""
    if file == STDIN:
        if _is_closed(sys.stdin):
            raise typer.BadParameter("standard input is closed: name a file", param_hint="FILE")
        if sys.stdin.isatty():
            remark("reading standard input; end it with Ctrl-D")
        return decode(sys.stdin.buffer.read())
    try:
        return decode(file.read_bytes())
    except OSError as e:
        raise typer.BadParameter(f"cannot read {file}: {e.strerror}", param_hint="FILE") from e


def write(text: str) -> None:
    """Put `text` on standard output as it is; a terminal alone gets the newline it lacks."""
    write_bytes(encode(text))
    if sys.stdout.isatty() and text and not text.endswith("\n"):
        write_bytes(b"\n")


def write_json(value: object) -> None:
    from kimi_proxy.core import jsontext

    write_bytes(jsontext.encode(value) + b"\n")


def write_bytes(raw: bytes) -> None:
    if _is_closed(sys.stdout):
        remark("standard output is closed: there is nowhere to write the result")
        raise typer.Exit(1)
    try:
        sys.stdout.buffer.write(raw)
        sys.stdout.buffer.flush()
    except OSError as e:
        _abandon(sys.stdout)
        if not isinstance(e, BrokenPipeError):  # then the reader, such as `head`, has seen enough
            remark(f"the result cannot be written: {e.strerror}")
        raise typer.Exit(1) from None


def remark(text: str) -> None:
    """Tell the person, if anybody listens; programs read standard output."""
    if _is_closed(sys.stderr):  # print would take standard output for it
        return
    try:
        print(f"kimi-proxy: {text}", file=sys.stderr, flush=True)
    except OSError:
        _abandon(sys.stderr)


def _is_closed(stream: TextIO | None) -> bool:
    """Whether a shell has closed it before we began, with `2>&-` for instance: Python has no stream then."""
    return stream is None


def _abandon(stream: TextIO) -> None:
    """Let what could not be written go nowhere: Python would try once more at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def colour(text: str, code: str) -> str:
    """`text` in an ANSI colour, if standard output is a terminal that wants colours."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return f"\x1b[{code}m{text}\x1b[0m" if wanted else text
