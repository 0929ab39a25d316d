"""`kimi-proxy start` in the background: started, waited for, found again and ended."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError, UpstreamUnreachable
from kimi_proxy.proxy.private_files import private_file
from kimi_proxy.proxy.process import Pid, detach, end, exit_code, ourselves

FOLDER = "run"
FILE = "start.json"
BACKGROUND = "background.json"
LOG = "background.log"
LOCK = "lock"
LOOK_EVERY_S = 0.05
LOG_LINES = 80
STOP_S = 10.0  # longer than it takes to let requests and servers end


@dataclass(frozen=True, slots=True)
class Running:
    """A `start` that lives, and the addresses that it serves."""

    pid: Pid
    addresses: Mapping[str, str]
    config_file: Path | None = None  # where it read its settings, or would have
    settings: str = ""  # what distinguishes them from others in that file


@contextmanager
def announce(home: Path, addresses: Mapping[str, str], config_file: Path | None = None) -> Iterator[None]:
    """Let other processes find us while the block runs. A home that cannot be written stops no request."""
    me = ourselves()
    file = home / FOLDER / FILE
    with suppress(OSError):
        write(file, me, addresses, config_file)
    try:
        yield
    finally:
        found = read(file)
        if found is not None and found.pid == me:
            with suppress(OSError):
                file.unlink(missing_ok=True)


def settings_digest(file: Path | None) -> str:
    """Return what distinguishes one content of a configuration file from another; "" without a file."""
    try:
        return "" if file is None else sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def write(file: Path, pid: Pid, addresses: Mapping[str, str], config_file: Path | None = None) -> None:
    fresh = file.with_suffix(f".{os.getpid()}")
    private_file(fresh)
    process = {"pid": pid.number, "born": pid.born, "addresses": addresses}
    read_from = str(config_file.absolute()) if config_file else ""
    settings = {"config_file": read_from, "settings": settings_digest(config_file)}
    fresh.write_bytes(json.encode({**process, **settings}))
    fresh.replace(file)


def read(file: Path) -> Running | None:
    """Return the process that wrote the file, if it still lives."""
    try:
        value = json.decode(file.read_bytes())
    except (OSError, ParseError):
        return None
    match value:
        case {"pid": int(number), "born": str(born), "addresses": dict(addresses), **more}:
            pid = Pid(number, born)
            named = {str(name): str(url) for name, url in addresses.items()}
            config_file = Path(str(more["config_file"])) if more.get("config_file") else None
            return Running(pid, named, config_file, str(more.get("settings", ""))) if pid.runs else None
    return None


def start(home: Path, argv: Sequence[str], env: Mapping[str, str], patience_s: float) -> Running:
    """Start `argv` and wait until it can be found; raise UpstreamUnreachable with the end of its log if it cannot."""
    try:
        with _one_at_a_time(home):
            return running(home) or _start(home, argv, env, patience_s)
    except OSError as e:
        raise UpstreamUnreachable(f"cannot write to {home}: {e}") from e


def _start(home: Path, argv: Sequence[str], env: Mapping[str, str], patience_s: float) -> Running:
    log = home / FOLDER / LOG
    private_file(log)
    pid = detach(argv, env, log)
    write(home / FOLDER / BACKGROUND, pid, {})
    deadline = time.monotonic() + patience_s
    while (found := running(home)) is None:
        if (code := exit_code(pid)) is not None:
            raise UpstreamUnreachable(f"kimi-proxy exited with status {code}; its log:\n{read_log(home)}")
        if time.monotonic() > deadline:
            raise UpstreamUnreachable(
                f"kimi-proxy is not ready after {patience_s:g} s; its log so far:\n{read_log(home)}"
            )
        time.sleep(LOOK_EVERY_S)
    return found


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Let a second caller wait; it then finds what the first one started."""
    private_file(home / FOLDER / LOCK)
    lock = os.open(home / FOLDER / LOCK, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    try:
        _lock(lock)
        yield
    finally:
        os.close(lock)


def _lock(handle: int) -> None:
    """Wait until no other process has the file locked; on Windows for 10 s, then raise OSError."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)


def running(home: Path) -> Running | None:
    return read(home / FOLDER / FILE)


def is_background(home: Path, pid: Pid) -> bool:
    found = read(home / FOLDER / BACKGROUND)
    return found is not None and found.pid == pid


def stop(home: Path, pid: Pid) -> None:
    end(pid, STOP_S)
    exit_code(pid)  # a child of ours wants to be waited for
    with suppress(OSError):
        (home / FOLDER / BACKGROUND).unlink(missing_ok=True)


def read_log(home: Path, lines: int = LOG_LINES) -> str:
    """Return the end of its log."""
    try:
        text = (home / FOLDER / LOG).read_text("utf-8", "replace")
    except OSError:
        return ""
    return "".join(text.splitlines(keepends=True)[-lines:])
