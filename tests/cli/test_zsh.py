"""Completion in zsh, as a person at a terminal gets it."""

import os
import re
import select
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.cli.shell import COMPLETED, PATH, need, script

from .conftest import Cli

# Windows has none of them.
fcntl, pty, termios = (pytest.importorskip(name) for name in ("fcntl", "pty", "termios"))


def test_zsh_completes_commands_options_and_values_from_the_first_key_on(cli: Cli, tmp_path: Path):
    need("zsh")
    (tmp_path / "_kimi-proxy").write_text(script(cli, "zsh"), "utf-8")
    with Zsh(tmp_path) as zsh:
        for line, words in COMPLETED:
            assert zsh.offers(line, words)


class Zsh:
    """A real zsh at a terminal, which finds the completions of a folder as users have them."""

    SETTINGS = "fpath=({0} $fpath); autoload -Uz compinit; compinit -D -u; LISTMAX=1000; bindkey '^T' list-choices"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> "Zsh":
        keyboard, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 100, 250, 0, 0))
        env = {"PATH": PATH, "HOME": str(self._folder), "TERM": "xterm", "LANG": "C.UTF-8"}
        self._process = subprocess.Popen(
            ["zsh", "-f", "-i"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=self._folder,
            env=env,
            start_new_session=True,
        )
        os.close(terminal)
        self._keyboard = keyboard
        os.write(keyboard, f"{self.SETTINGS.format(self._folder)}; PS1='rea''dy> '\n".encode())
        assert self._reads(lambda seen: "ready> " in seen)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._keyboard)

    def offers(self, line: str, words: set[str]) -> bool:
        """Whether these words, and no other of our commands and values, are listed for a line that was typed."""
        os.write(self._keyboard, f"{line}\x14".encode())
        others = {word for _, listed in COMPLETED for word in listed} - words
        is_right = self._reads(lambda seen: words <= _listed(seen) and not others & _listed(seen))
        os.write(self._keyboard, b"\x15\n")
        return is_right and self._reads(lambda seen: "ready> " in seen)

    def _reads(self, is_there: Callable[[str], bool], within_s: float = 60) -> bool:
        seen, deadline = b"", time.monotonic() + within_s
        while not is_there(seen.decode("utf-8", "replace")):
            if not select.select([self._keyboard], [], [], max(0, deadline - time.monotonic()))[0]:
                return False
            seen += os.read(self._keyboard, 65_536)
        return True


def _listed(seen: str) -> set[str]:
    """The words of a list of choices: it begins below what was typed, and ends where the cursor goes up again."""
    listing, *rest = re.split(r"\x1b\[\d*A", seen.partition("\n")[2], maxsplit=1)
    bare = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", listing).replace("\r", "")
    return {word for row in bare.split("\n") for word in row.partition(" -- ")[0].split()} if rest else set()
