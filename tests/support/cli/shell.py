"""What the tests of shell share with others."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # completion calls `kimi-proxy` by its name

COMPLETED = [
    ("kimi-proxy st", {"start", "status", "statusline", "store"}),
    ("kimi-proxy mcp re", {"restart"}),
    ("kimi-proxy prune --so", {"--source-type"}),
    ("kimi-proxy prune --source-type ", {"auto", "code", "logs", "docs"}),
    ("kimi-proxy init cl", {"claude", "cline"}),
]


def need(name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here")


def script(cli: Cli, name: str) -> str:
    done = cli("completion", name)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()
