"""A machine that is short of something: descriptors, a language, a folder, or the time of a process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import children_of
from tests.support.services.workers import open_workers
from tests.support.texts import a_log, a_question

from kimi_proxy.core.lines import decode_text

TEXT = "\n".join(f"ligne {i} : déjà vu — naïve façade №{i}" for i in range(300)) + "\n"


def run(folder: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "KIMI_PROXY_HOME": str(folder / "state"),
    } | environment
    command = [sys.executable, "-P", "-m", "kimi_proxy", *args]
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, timeout=120, check=False)


def test_texts_come_through_where_the_language_is_c(tmp_path: Path):
    (tmp_path / "log.txt").write_text(TEXT, encoding="utf-8")
    done = run(tmp_path, "prune", "log.txt", "--goal", "№7", LC_ALL="C", LANG="C", PYTHONUTF8="0")

    assert done.returncode == 0, done.stderr
    kept = [line for line in decode_text(done.stdout).split("\n") if "⟦PRUNÉ" not in line]
    assert set(kept) <= {*TEXT.split("\n"), ""}
    assert "PRUNÉ" in decode_text(done.stdout)


def test_there_need_be_no_folder_for_temporary_files(tmp_path: Path):
    (tmp_path / "log.txt").write_text(TEXT, encoding="utf-8")
    done = run(tmp_path, "prune", "log.txt", "--goal", "7", TMPDIR="/nowhere/at/all")

    assert done.returncode == 0, done.stderr
    assert "PRUNÉ" in decode_text(done.stdout)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="processes cannot be stopped here")
async def test_a_worker_that_is_stopped_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESTS_FORKS", raising=False)  # for a worker that is itself what is stopped
    question, others = a_question(a_log(4000)), set(children_of(os.getpid()))
    async with open_workers(limit=1) as workers:
        await workers.local_scores(question, 60)
        for child in set(children_of(os.getpid())) - others:
            os.kill(child, signal.SIGSTOP)
        async with asyncio.timeout(60):
            with pytest.raises(TimeoutError):
                await workers.local_scores(question, 0.5)
            assert await workers.local_scores(question, 60)


SERVER = """
import asyncio, resource, sys
from pathlib import Path
from kimi_proxy.assembly.apps import proxy_app
from kimi_proxy.api.server import serve
from kimi_proxy.core.config import parse
from kimi_proxy.assembly.runtime import running

async def main():
    async with running(parse("", {}, Path(sys.argv[1]))) as runtime:
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))
        ready = lambda host, port: print(port, flush=True)
        await serve(proxy_app(runtime), "127.0.0.1", 0, stop=asyncio.Event(), on_ready=ready)

asyncio.run(main())
"""


def test_a_server_without_descriptors_goes_on_when_it_has_some_again(tmp_path: Path):
    pytest.importorskip("resource", reason="there is no limit of descriptors here")
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(120)]
        for line in idle:
            line.close()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
            line.sendall(f"GET /health HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: line.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert server.poll() is None
    finally:
        server.kill()
        server.communicate()
