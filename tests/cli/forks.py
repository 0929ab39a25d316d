"""Commands in processes of their own that need not import anything: forks of one process that has it all.

The imports of a command take half a second to a second and a half of CPU, and the tests run some hundreds of commands.
"""

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

import kimi_proxy

PATIENCE_S = 300
_MAX_ORDER_BYTES = 100_000
_LOADED_LATE = ("aiohttp", "httpx", "rich.progress", "starlette", "tomlkit", "uvicorn", "uvloop", "websockets", "yaml")


class Forks:
    """Runs commands as `subprocess.run` does, with their output in files instead of pipes."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    def run(
        self, args: Sequence[str], stdin: bytes, cwd: Path, env: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[bytes]":
        with TemporaryFile() as out, TemporaryFile() as err:
            take, give = os.pipe()
            hear, tell = os.pipe()
            order = json.dumps([list(args), str(cwd), dict(env)]).encode()
            socket.send_fds(self._line, [order], [take, out.fileno(), err.fileno(), tell])
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
def forks() -> Iterator[Forks]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", "from tests.cli.forks import serve; serve()", str(theirs.fileno())]
    root = Path(__file__).parents[2]
    with (
        subprocess.Popen(
            command,
            cwd=root,
            env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        ),
        ours,
    ):
        theirs.close()
        yield Forks(ours)


def _feed(pipe: int, content: bytes) -> None:
    with suppress(BrokenPipeError), open(pipe, "wb") as stdin:
        stdin.write(content)


def _code(pipe: int) -> int:
    """What the command ended with; a signal is negative, as in `subprocess`."""
    with open(pipe, "rb", buffering=0) as hear:
        pid = int(hear.readline())
        if not select.select([hear], [], [], PATIENCE_S)[0]:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError("the command did not end")
        return os.waitstatus_to_exitcode(int(hear.readline()))


def serve() -> None:
    """Fork for each order until there are no more; a fork returns too, when its command has ended."""
    line = socket.socket(fileno=int(sys.argv[1]))
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody has to wait for what was forked
    while True:
        order, fds, _, _ = socket.recv_fds(line, _MAX_ORDER_BYTES, 4)
        if not order:
            return
        if os.fork() == 0:
            line.close()
            *streams, tell = fds
            _fork_once_more(tell)
            _run(order, streams)
            return
        for fd in fds:
            os.close(fd)


def _fork_once_more(tell: int) -> None:
    """Return in a child only; its parent says its number, then with what status it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        os.write(tell, f"{pid}\n".encode())
        os.write(tell, f"{os.waitpid(pid, 0)[1]}\n".encode())
        os._exit(0)
    os.close(tell)


def _run(order: bytes, streams: Sequence[int]) -> None:
    from kimi_proxy.cli import main

    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    args, cwd, env = json.loads(order)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    sys.argv = [str(Path(kimi_proxy.__path__[0], "__main__.py")), *args]
    sys.path[0] = cwd
    main()


def _load() -> None:
    """Import whatever a command may need; starts no thread, because a fork would lose it."""
    for module in pkgutil.walk_packages(kimi_proxy.__path__, "kimi_proxy."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LOADED_LATE:
        with suppress(ImportError):
            importlib.import_module(name)
    from kimi_proxy.core import tokens
    from kimi_proxy.features.pruning import model

    tokens.count("x")
    model.installed()
    gc.collect()
    gc.freeze()  # a fork that ends frees what it has made, and leaves these pages alone
