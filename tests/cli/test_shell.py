"""Completion, the manual page, and the question whether a newer version is out."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cli.shell import COMPLETED, PATH, need, script
from tests.support.evil import answering, evil, http

from kimi_proxy import __version__

from .conftest import Cli

ROOT = Path(__file__).parents[2]
ASK = """
ask() {{
    COMP_WORDS=("$@"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMPREPLY=()
    _kimi_proxy_completion kimi-proxy "${{COMP_WORDS[COMP_CWORD]}}" ""; echo "${{COMPREPLY[*]}}"
}}
{asked}
"""


def test_bash_completes_commands_options_and_values(cli: Cli):
    asked = "\n".join("ask " + line.removesuffix(" ") + (" ''" if line.endswith(" ") else "") for line, _ in COMPLETED)
    done = subprocess.run(
        ["bash", "--norc", "-c", script(cli, "bash") + ASK.format(asked=asked)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**cli.env, "PATH": PATH},
        check=False,
    )

    assert done.stderr == ""
    assert [set(row.split()) for row in done.stdout.splitlines()] == [words for _, words in COMPLETED]


def test_fish_completes_commands_options_and_values(cli: Cli, tmp_path: Path):
    need("fish")
    file = tmp_path / "kimi-proxy.fish"
    file.write_text(script(cli, "fish"), "utf-8")
    asked = "; echo; ".join(f"complete --do-complete {line!r}" for line, _ in COMPLETED)
    env = {**cli.env, "PATH": PATH, "HOME": str(tmp_path)}
    command = ["fish", "--no-config", "-c", f"source {file}; {asked}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path, check=False)

    assert done.stderr == ""
    offered = [{row.partition("\t")[0] for row in rows.splitlines()} for rows in done.stdout.split("\n\n")]
    assert offered == [words for _, words in COMPLETED]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_shell_reads_its_script_without_a_complaint(name: str, cli: Cli, tmp_path: Path):
    need(name)
    file = tmp_path / "completion"
    file.write_text(script(cli, name), "utf-8")
    done = subprocess.run([name, "-n", file], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_manual_page_is_current():
    command = [sys.executable, str(ROOT / "scripts" / "manual.py")]
    manual = subprocess.run(command, capture_output=True, timeout=60, check=True).stdout.decode()

    assert (ROOT / "docs" / "kimi-proxy.1").read_text("utf-8") == manual, "run scripts/man"


def test_man_reads_the_page_without_a_warning():
    need("groff")
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
        agreed = await asyncio.to_thread(cli, "upgrade-check", "--yes", env=env)
        file.write_text(f"[upgrade]\ncheck = true\n{url}\n", "utf-8")
        newer = await asyncio.to_thread(cli, "upgrade-check", env=env)

    assert (refused.returncode, refused.stdout, asked_before) == (78, b"", 0)
    assert b"--yes" in refused.stderr and b"check = true" in refused.stderr
    assert agreed.returncode == 10
    assert newer.returncode == 10
    assert newer.stdout.decode() == f"kimi-proxy 9.1.2 is available; this is {__version__}\n"
    heard, _ = index.heard
    assert heard.target == "/v1/pypi/kimi-proxy/json"
    assert {name.lower() for name, _ in heard.headers} == {"host", "accept"}


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (http(b'{"info": {"version": "0.0.1"}}'), 0, "is the newest version"),
        (http(b'{"info": {"version": "latest"}}'), 2, "without a version"),
        (http(b"<html>"), 2, "without a version"),
    ],
    ids=["older", "no version", "no JSON"],
)
async def test_another_answer_of_the_index_is_said(answer: bytes, code: int, said: str, cli: Cli):
    async with evil(answering(answer)) as index:
        (cli.here / "settings.toml").write_text(f'[upgrade]\ncheck = true\nurl = "{index.url}/json"\n', "utf-8")
        done = await asyncio.to_thread(cli, "upgrade-check", env={"KIMI_PROXY_CONFIG": str(cli.here / "settings.toml")})

    assert done.returncode == code
    assert said in (done.stdout + done.stderr).decode()
