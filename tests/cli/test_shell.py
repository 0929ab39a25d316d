"""Completion, the manual page, and the question whether a newer version is out."""

import asyncio
import fcntl
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.evil import answering, evil, http

from kimi_proxy import __version__
from kimi_proxy.cli import shell

from .conftest import Cli

ROOT = Path(__file__).parents[2]
SCRIPTS = {"bash": shell.bash_script, "zsh": shell.zsh_script, "fish": shell.fish_script}
ASK = """
ask() { COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _kimi_proxy; echo "${COMPREPLY[*]}"; }
ask kimi-proxy pr
ask kimi-proxy prune --sou
ask kimi-proxy prune --source-type ''
ask kimi-proxy --help mcp re
ask kimi-proxy init cl
ask kimi-proxy nothing of ours
"""


def test_bash_completes_commands_options_and_values(tmp_path: Path):
    done = subprocess.run(
        ["bash", "--norc", "-u", "-c", shell.bash_script() + ASK],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "prune pruner",
        "--source-type",
        "auto code logs docs",
        "restart",
        "claude cline",
        "",
    ]


COMPLETED = [
    ("kimi-proxy st", {"start", "status", "store"}),
    ("kimi-proxy mcp re", {"restart"}),
    ("kimi-proxy prune --so", {"--source-type"}),
    ("kimi-proxy prune --source-type ", {"auto", "code", "logs", "docs"}),
    ("kimi-proxy init cl", {"claude", "cline"}),
]


def test_fish_completes_commands_options_and_values(tmp_path: Path):
    _need("fish")
    script = tmp_path / "kimi-proxy.fish"
    script.write_text(shell.fish_script(), "utf-8")
    asked = "; echo; ".join(f"complete --do-complete {line!r}" for line, _ in COMPLETED)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = ["fish", "--no-config", "-c", f"source {script}; {asked}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, cwd=tmp_path, check=False)

    assert done.stderr == ""
    offered = [{row.partition("\t")[0] for row in rows.splitlines()} for rows in done.stdout.split("\n\n")]
    assert offered == [words for _, words in COMPLETED]


def test_zsh_completes_commands_options_and_values_from_the_first_key_on(tmp_path: Path):
    _need("zsh")
    (tmp_path / "_kimi-proxy").write_text(shell.zsh_script(), "utf-8")
    with Zsh(tmp_path) as zsh:
        for line, words in COMPLETED:
            assert zsh.offers(line, words)


def _need(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here")


class Zsh:
    """A real zsh at a terminal, which finds the completions of a folder as users have them."""

    SETTINGS = "fpath=({0} $fpath); autoload -Uz compinit; compinit -D -u; LISTMAX=1000; bindkey '^T' list-choices"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> "Zsh":
        keyboard, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 100, 250, 0, 0))
        env = {"PATH": os.environ["PATH"], "HOME": str(self._folder), "TERM": "xterm", "LANG": "C.UTF-8"}
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


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_shell_reads_its_script_without_a_complaint(name: str, tmp_path: Path):
    _need(name)
    file = tmp_path / "completion"
    file.write_text(SCRIPTS[name](), "utf-8")
    done = subprocess.run([name, "-n", file], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_command_prints_the_script_of_each_shell(name: str, cli: Cli):
    done = cli("completion", name)

    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == SCRIPTS[name]()


def test_every_command_and_option_is_in_every_script_and_in_the_manual():
    manual = shell.manual().replace(r"\-", "-")
    bash, zsh, fish = shell.bash_script(), shell.zsh_script(), shell.fish_script()
    for entry in shell.entries():
        for word in (*entry.path, *(name for option in entry.options for name in option.names)):
            assert word in manual
            assert word in bash
            assert word in zsh
            assert word.lstrip("-") in fish


def test_the_manual_page_is_current():
    assert (ROOT / "docs" / "kimi-proxy.1").read_text("utf-8") == shell.manual(), "run scripts/man"


def test_man_reads_the_page_without_a_warning():
    _need("groff")
    command = ["groff", "-man", "-Tutf8", "-ww", "-K", "utf8", str(ROOT / "docs" / "kimi-proxy.1")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "upgrade-check" in done.stdout


async def test_the_index_is_asked_only_after_the_user_allowed_it(cli: Cli):
    async with evil(answering(http(b'{"info": {"version": "9.1.2"}}'))) as index:
        url = f'url = "{index.url}/pypi/kimi-proxy/json"'
        file = cli.here / "settings.toml"
        env = {"KIMI_PROXY_CONFIG": str(file)}
        file.write_text(f"[upgrade]\n{url}\n", "utf-8")
        refused = await asyncio.to_thread(cli, "upgrade-check", env=env)
        asked_before = len(index.heard)
        file.write_text(f"[upgrade]\ncheck = true\n{url}\n", "utf-8")
        newer = await asyncio.to_thread(cli, "upgrade-check", env=env)

    assert (refused.returncode, refused.stdout, asked_before) == (78, b"", 0)
    assert b"check = true" in refused.stderr
    assert newer.returncode == 10
    assert newer.stdout.decode() == f"kimi-proxy 9.1.2 is out; this is {__version__}\n"
    (heard,) = index.heard
    assert heard.target == "/v1/pypi/kimi-proxy/json"
    assert {name.lower() for name, _ in heard.headers} == {"host", "accept"}


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (http(b'{"info": {"version": "0.0.1"}}'), 0, "is the newest version"),
        (http(b'{"info": {"version": "latest"}}'), 2, "no version"),
        (http(b"<html>"), 2, "no version"),
    ],
    ids=["older", "no version", "no JSON"],
)
async def test_another_answer_of_the_index_is_said(answer: bytes, code: int, said: str, cli: Cli):
    async with evil(answering(answer)) as index:
        (cli.here / "settings.toml").write_text(f'[upgrade]\ncheck = true\nurl = "{index.url}/json"\n', "utf-8")
        done = await asyncio.to_thread(cli, "upgrade-check", env={"KIMI_PROXY_CONFIG": str(cli.here / "settings.toml")})

    assert done.returncode == code
    assert said in (done.stdout + done.stderr).decode()
