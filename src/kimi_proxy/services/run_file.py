"""Where a running `start` can be found: written when it answers, gone when it ends, and not believed if it crashed."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.types import JsonValue
from kimi_proxy.proxy.processes import Pid, ourselves
from kimi_proxy.services.store.private import private_file

FOLDER = "run"
FILE = "start.json"
BACKGROUND = "background.json"
LOG = "background.log"


@dataclass(frozen=True, slots=True)
class Running:
    """A `start` that lives, and the addresses that it told."""

    pid: Pid
    addresses: Mapping[str, str]


@contextmanager
def announced(home: Path, addresses: Mapping[str, str]) -> Iterator[None]:
    """While this lasts, others find us. A home that cannot be written keeps nobody from being served."""
    me, file = ourselves(), home / FOLDER / FILE
    with suppress(OSError):
        write(file, me, addresses)
    try:
        yield
    finally:
        found = read(file)
        if found is not None and found.pid == me:
            with suppress(OSError):
                file.unlink(missing_ok=True)


def write(file: Path, pid: Pid, addresses: Mapping[str, str]) -> None:
    fresh = file.with_suffix(f".{os.getpid()}")
    private_file(fresh)
    fresh.write_bytes(jsontext.encode({"pid": pid.number, "born": pid.born, "addresses": addresses}))
    fresh.replace(file)


def read(file: Path) -> Running | None:
    """Who wrote the file, if that process still lives."""
    try:
        found = _parsed(jsontext.decode(file.read_bytes()))
    except (OSError, ParseError):
        return None
    return found if found is not None and found.pid.runs else None


def _parsed(value: JsonValue) -> Running | None:
    match value:
        case {"pid": int(number), "born": str(born), "addresses": dict(addresses)}:
            return Running(Pid(number, born), {str(name): str(url) for name, url in addresses.items()})
    return None
