import os
import socket
import sys
from pathlib import Path

import pytest
from tests.support.forks import Forks, commands

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")


@pytest.mark.parametrize("part", [b"", b"\0\0", b"\0\0\1\0", b"\0\0\1\0[[half of"])
def test_a_worker_that_is_killed_while_it_asks_for_a_fork_does_no_harm(part: bytes, tmp_path: Path) -> None:
    forks = commands()
    assert isinstance(forks, Forks)
    assert forks.run(["--version"], b"", tmp_path, {"PATH": os.environ["PATH"]}).returncode == 0  # it listens by now
    with socket.socket(socket.AF_UNIX) as killed:
        killed.connect(str(forks.address))
        killed.sendall(part)

    assert forks.run(["--version"], b"", tmp_path, {"PATH": os.environ["PATH"]}).returncode == 0
