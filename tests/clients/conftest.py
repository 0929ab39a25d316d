"""The pruner as clients meet it: a server on a port, or a command that they start."""

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.support.api.pruner_world import pruner

STDIO = [sys.executable, "-m", "kimi_proxy", "pruner", "--stdio"]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Return a folder on the disk: agents run commands where /dev/shm, with the folders of other tests, is empty."""
    with TemporaryDirectory(prefix="kimi-proxy-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def port(home: Path) -> Iterator[int]:
    with pruner(home) as port:
        yield port
