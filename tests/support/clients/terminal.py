"""A program in a terminal, as a person has it in front of them."""

import asyncio
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 120
ROWS, COLUMNS = 50, 140
# What a terminal answers when it is asked who it is, and where its cursor stands.
ANSWERS = {b"\x1b[c": b"\x1b[?62c", b"\x1b[6n": b"\x1b[1;1R"}
_CONTROL = re.compile(r"\x1b\[[0-9;?>]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>78]|[\r\x0e\x0f]")


async def watch(command: Sequence[str], cwd: Path, env: Mapping[str, str], until: Callable[[str], bool]) -> str:
    """Run a program until what it has shown is enough, then end it; return all of that without its colours."""
    return await asyncio.to_thread(_watch, command, cwd, env, until)


def _watch(command: Sequence[str], cwd: Path, env: Mapping[str, str], until: Callable[[str], bool]) -> str:
    watcher, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    env = {**env, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    shown, ends = b"", time.monotonic() + PATIENCE_S
    with subprocess.Popen(command, cwd=cwd, env=env, start_new_session=True, **streams) as process:
        os.close(terminal)
        with suppress(OSError):  # how Linux says that the program has left the terminal
            while time.monotonic() < ends and not until(_readable(shown)):
                if select.select([watcher], [], [], 0.2)[0]:
                    piece = os.read(watcher, 65_536)
                    shown += piece
                    for question in (each for each in ANSWERS if each in piece):
                        os.write(watcher, ANSWERS[question])
        process.kill()
    os.close(watcher)
    return _readable(shown)


def _readable(shown: bytes) -> str:
    return re.sub(r"\s+", " ", _CONTROL.sub(" ", shown.decode("utf-8", "replace")))
