"""./start.sh on a machine that has Python and pip and nothing of ours."""

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.support.checkout import LISTENS, PATIENCE_S, ROOT, clean_env, copy_to

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


@contextmanager
def started(script: Path, env: dict[str, str], cwd: Path) -> Iterator[tuple["subprocess.Popen[bytes]", str, bytes]]:
    """A running ./start.sh, the address that it told, and what it said until then."""
    with subprocess.Popen([script], bufsize=0, stderr=subprocess.PIPE, cwd=cwd, env=env) as process:
        try:
            said = b""
            assert process.stderr is not None
            for line in process.stderr:
                said += line
                if found := LISTENS.search(line):
                    yield process, found[1].decode(), said
                    return
            raise AssertionError(f"it ended before it listened: {said.decode()}")
        finally:
            process.kill()


def stopped(process: "subprocess.Popen[bytes]") -> tuple[int, bytes]:
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def listed_tools(address: str) -> list[str]:
    ask = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    with urlopen(Request(f"{address}/rpc", ask, {"Content-Type": "application/json"}), timeout=60) as answer:
        return [tool["name"] for tool in json.load(answer)["result"]["tools"]]


def test_a_fresh_copy_sets_itself_up_serves_stops_and_starts_again_at_once(tmp_path: Path):
    copy = copy_to(tmp_path / "a copy with spaces")
    env = clean_env(tmp_path / "home")

    with started(copy / "start.sh", env, tmp_path) as (process, address, said):
        assert b"setting up" in said
        assert urlopen(f"{address}/health", timeout=60).status == 200
        assert "prune_text" in listed_tools(address)
        code, rest = stopped(process)
    assert (code, b"Traceback" in rest) == (0, False)
    assert (tmp_path / "home" / ".local" / "state" / "kimi-proxy").is_dir()

    with started(copy / "start.sh", env, tmp_path) as (process, _, said):
        assert b"setting up" not in said
        assert stopped(process)[0] == 0

    again = subprocess.run([copy / "scripts" / "setup"], env=env, check=True, capture_output=True, timeout=PATIENCE_S)
    assert again.stdout + again.stderr == b""  # what sets something up says so


def _python(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def _tools(folder: Path) -> str:
    """A path with what every machine has, and no Python."""
    folder.mkdir()
    for name in ("sh", "cat", "cksum", "dirname"):
        found = next(d for d in os.environ["PATH"].split(os.pathsep) if Path(d, name).exists())
        (folder / name).symlink_to(Path(found, name))
    return str(folder)


@pytest.mark.parametrize(
    ("version", "told"), [("", b"here is no python3"), ("Python 3.8.10", b"here is Python 3.8.10")]
)
def test_without_a_python_that_is_new_enough_it_says_what_is_needed(tmp_path: Path, version: str, told: bytes):
    copy = copy_to(tmp_path / "copy")
    path = _tools(tmp_path / "tools")
    if version:
        _python(tmp_path / "old", "python3", f'[ "$1" = -V ] && echo {version} && exit; exit 1')
        path = f"{tmp_path / 'old'}{os.pathsep}{path}"

    done = subprocess.run([copy / "start.sh"], env={"PATH": path}, capture_output=True, timeout=60)

    assert done.returncode == 1
    assert b"Python 3.11 or newer is needed; " + told in done.stderr


@pytest.mark.skipif("KIMI_PROXY_DEEP" not in os.environ, reason="fetches everything again: ./test.sh --deep")
def test_where_uv_fails_venv_and_pip_do_it(tmp_path: Path):
    copy = copy_to(tmp_path / "copy")
    env = clean_env(tmp_path / "home")
    _python(tmp_path / "broken", "uv", "exit 1")

    with started(copy / "start.sh", {**env, "PATH": f"{tmp_path / 'broken'}{os.pathsep}{env['PATH']}"}, tmp_path) as (
        process,
        _,
        said,
    ):
        assert b"trying venv and pip" in said
        assert stopped(process)[0] == 0


@pytest.mark.parametrize(
    "script", ["start.sh", "test.sh", ".ci/run", "scripts/setup", "scripts/check", "scripts/start-mcp-servers.sh"]
)
def test_scripts_can_be_run(script: str):
    assert (ROOT / script).stat().st_mode & stat.S_IXUSR
