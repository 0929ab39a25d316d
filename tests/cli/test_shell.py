"""Completion and the manual page."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.cli.shell import COMPLETED, PATH, need, script

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
    assert "kimi-proxy completion" in done.stdout
