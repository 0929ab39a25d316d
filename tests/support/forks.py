"""Commands in processes of their own that need not import anything: forks of one process that has it all.

The imports of a command take half a second to a second and a half of CPU, and the tests run some hundreds of commands.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import TypeAlias

import kimi_proxy

PATIENCE_S = 300
_SIZE_BYTES = 4  # of the number before an order
Order: TypeAlias = tuple[Sequence[str], str, Mapping[str, str], bool]  # arguments, folder, environment, no hangup
_WORKER = "kimi_proxy.services.workers.worker"
_LOADED_LATE = ("aiohttp", "httpx", "starlette", "tomlkit", "uvicorn", "uvloop", "websockets", "yaml")


class Fork:
    """A command that runs, with what the tests use of `subprocess.Popen`; its streams are not buffered."""

    def __init__(self, address: Path, args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        streams = [os.pipe() for _ in range(3)]
        hear, tell = os.pipe()
        ends = [streams[0][0], streams[1][1], streams[2][1], tell]
        _ask(address, _order(args, cwd, env), ends)
        for end in ends:
            os.close(end)
        self.args = args
        self.returncode: int | None = None
        self.stdin = FileIO(streams[0][1], "w")
        self.stdout, self.stderr = (FileIO(read) for read, _ in streams[1:])
        self._report = FileIO(hear)
        self.pid = int(self._report.readline())

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float = PATIENCE_S) -> int:
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def communicate(self, timeout: float = PATIENCE_S) -> tuple[bytes, bytes]:
        """What it still says until it ends."""
        self.stdin.close()
        with ThreadPoolExecutor(2) as readers:
            said = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
            self.wait(timeout)
            return said[0].result(timeout), said[1].result(timeout)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of the streams of a command that was ended."""
        for stream in (self.stdin, self.stdout, self.stderr):
            stream.close()
        self.wait()
        self._report.close()

    def _ended(self, within_s: float) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], within_s)[0]:
            # A keeper that was killed says nothing.
            self.returncode = os.waitstatus_to_exitcode(int(self._report.readline() or signal.SIGKILL))
        return self.returncode


class Forks:
    def __init__(self, address: Path) -> None:
        self.address = address

    def run(
        self, args: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a command as `subprocess.run` does, with its output in files instead of pipes."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            take, give = os.pipe()
            hear, tell = os.pipe()
            _ask(self.address, _order(args, cwd, env), [take, out.fileno(), err.fileno(), tell])
            os.close(take)
            os.close(tell)
            feeding = threading.Thread(target=_feed, args=(give, stdin), daemon=True)
            feeding.start()
            code = _code(hear)
            feeding.join(PATIENCE_S)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(args, code, out.read(), err.read())

    @contextmanager
    def started(self, args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> Iterator[Fork]:
        """A command that runs until it is told to stop; killed if the test forgets."""
        process = Fork(self.address, args, cwd, env)
        try:
            yield process
        finally:
            process.kill()
            process.close()


def _ask(address: Path, order: bytes, fds: Sequence[int]) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(address))
        socket.send_fds(line, [order], fds)


def _order(args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> bytes:
    # As a child of this process would inherit it; the tests themselves may run under nohup.
    ignores_hangup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    order = json.dumps([list(args), str(cwd), dict(env), ignores_hangup]).encode()
    return len(order).to_bytes(_SIZE_BYTES) + order


class FreshProcesses:
    """The same where there is no fork, on Windows: every command imports what it needs."""

    def run(
        self, args: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[bytes]":
        command = _command(args)
        return subprocess.run(command, input=stdin, capture_output=True, cwd=cwd, env=env, timeout=PATIENCE_S)

    @contextmanager
    def started(self, args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> "Iterator[subprocess.Popen[bytes]]":
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(_command(args), bufsize=0, cwd=cwd, env=env, **streams) as process:
            try:
                yield process
            finally:
                process.kill()


def _command(args: Sequence[str]) -> list[str]:
    return [sys.executable, *args] if args[:1] == ["-m"] else [sys.executable, "-m", "kimi_proxy", *args]


@cache
def commands() -> Forks | FreshProcesses:
    """Those of whoever started this worker of the tests, else of this process, which load once and end with it."""
    if not hasattr(os, "fork"):
        return FreshProcesses()
    address = os.environ.get("TESTS_FORKS")
    return Forks(Path(address) if address else _served())


def _served() -> Path:
    """Start a process that forks, and return where it is asked."""
    ours, theirs = socket.socketpair()
    address = Path(tempfile.mkdtemp(), "forks")
    program = [
        sys.executable,
        "-c",
        "from tests.support.forks import serve; serve()",
        str(theirs.fileno()),
        str(address),
    ]
    loaded = subprocess.Popen(
        program,
        cwd=Path(__file__).parents[2],
        # What is loaded once has to know from the start whether the run is a deep one.
        env={name: os.environ[name] for name in ("PATH", "KIMI_PROXY_DEEP") if name in os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def end() -> None:
        ours.close()
        loaded.wait()
        shutil.rmtree(address.parent)

    atexit.register(end)
    while loaded.poll() is None and not address.exists():
        time.sleep(0.01)
    return address


def warm_workers() -> None:
    """Have every server that is started from here on be a fork, and its workers, too (tests/warm)."""
    started = commands()
    if isinstance(started, Forks) and hasattr(os, "pidfd_open"):
        os.environ.update(_warm(started.address))


def warmth() -> dict[str, str]:
    """Return what tells a command where the forks are, for a client that hands on nothing else."""
    return {name: os.environ[name] for name in _warm("") if "TESTS_FORKS" in os.environ}


def _warm(address: Path | str) -> dict[str, str]:
    return {"TESTS_FORKS": str(address), "PYTHONPATH": str(Path(__file__).parents[1] / "warm")}


def _feed(pipe: int, content: bytes) -> None:
    with suppress(BrokenPipeError), FileIO(pipe, "w") as stdin:
        left = memoryview(content)
        while left:
            left = left[stdin.write(left) or 0 :]


def _code(pipe: int) -> int:
    """What the command ended with; a signal is negative, as in `subprocess`."""
    with FileIO(pipe) as hear:
        pid = int(hear.readline())
        if not select.select([hear], [], [], PATIENCE_S)[0]:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError("the command did not end")
        return os.waitstatus_to_exitcode(int(hear.readline()))


def serve() -> None:
    """Fork for each order until nobody is left to give one; a fork returns too, when its command has ended."""
    line = socket.socket(fileno=int(sys.argv[1]))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{sys.argv[2]}.new")
    listening.listen(100)
    Path(f"{sys.argv[2]}.new").rename(sys.argv[2])
    _load()  # whoever asks meanwhile waits
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for what was forked
    while True:
        if line in select.select([line, listening], [], [])[0]:
            return
        asked = listening.accept()[0]
        order, fds = _received(asked)
        if order and _forked(order, fds, asked, (line, listening)):
            return
        for fd in fds:
            os.close(fd)
        asked.close()


def _received(asked: socket.socket) -> tuple[Order | None, list[int]]:
    """Return an order with its files; None at the end, or if who gave it was killed before it was whole."""
    with suppress(ConnectionResetError):
        start, fds, _, _ = socket.recv_fds(asked, _SIZE_BYTES, 4)
        size = int.from_bytes(start)
        text = asked.recv(size, socket.MSG_WAITALL) if size else b""
        return (json.loads(text) if text and len(text) == size else None), fds
    return None, []


def _forked(order: Order, fds: list[int], asked: socket.socket, not_theirs: Sequence[socket.socket]) -> bool:
    """Run a command in a fork; True there, when it has ended.

    Who asks sends the command's streams, and either a pipe that is told how it ends, or waits for that on the line.
    """
    match order[0]:
        case ["-m", module, *_]:
            importlib.import_module(module)  # so that the next fork has what it imports
    if os.fork():
        return False
    for one in not_theirs:
        one.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    streams, told = fds[:3], fds[3:]
    if told:
        asked.close()
        _fork_once_more(*told)
    else:
        _fork_for(asked, streams)
    try:
        _run(*order, streams)
    except SystemExit as ended:
        _leave(ended.code)
        raise
    _leave(0)
    return True


def _leave(code: object) -> None:
    """End as Python does, but for freeing all that was loaded, which takes half of a short command's time."""
    if not isinstance(code, int | None):
        return
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # else Python has to say so
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit((code or 0) & 0xFF)


def _fork_once_more(tell: int) -> None:
    """Return in a child only; its parent says its number, then with what status it has ended."""
    if pid := os.fork():
        os.write(tell, f"{pid}\n".encode())
        os.write(tell, f"{os.waitpid(pid, 0)[1]}\n".encode())
        os._exit(0)
    os.close(tell)


def _fork_for(starter: socket.socket, streams: Sequence[int]) -> None:
    """Return in a child only; its parent passes signals on to it, and kills it when `starter` is gone."""
    pid = os.fork()
    if not pid:
        starter.close()
        return
    for fd in streams:
        os.close(fd)
    ended = os.pidfd_open(pid)
    while ended not in select.select([starter, ended], [], [])[0]:
        number = starter.recv(1)
        os.kill(pid, number[0] if number else signal.SIGKILL)
        if not number:
            break
    status = os.waitpid(pid, 0)[1]
    with suppress(OSError):
        starter.send(str(status).encode())
    os._exit(0)


def _run(args: Sequence[str], cwd: str, env: Mapping[str, str], ignores_hangup: bool, streams: Sequence[int]) -> None:
    """Run a command of ours, or with `-m` a module as a program."""
    from kimi_proxy.__main__ import main

    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignores_hangup else signal.SIG_DFL)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if "KIMI_PROXY_DEEP" not in os.environ:
        os.environ.update(_warm(sys.argv[2]))  # for the workers that it starts
    time.tzset()
    tempfile.tempdir = None  # $TMPDIR may be another one
    sys.path[0] = cwd
    match args:
        case ["-m", module] if module == _WORKER:
            importlib.import_module(module).main()
        case ["-c", script]:
            exec(script, {"__name__": "__main__"})
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            del sys.modules[module]
            runpy.run_module(module, run_name="__main__")
        case _:
            sys.argv = [str(Path(kimi_proxy.__path__[0], "__main__.py")), *args]
            main()


def _load() -> None:
    """Import whatever a command may need. None of it starts a thread of ours, which a fork would lose."""
    for module in pkgutil.walk_packages(kimi_proxy.__path__, "kimi_proxy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LOADED_LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    from kimi_proxy.core import tokens
    from kimi_proxy.features.pruning import engine

    tokens.count("x")
    for prepare in engine.preparations():
        prepare()
    gc.collect()
    gc.freeze()  # a fork that ends frees what it has made, and leaves these pages alone
