"""`project_memory.json`: what people and agents want every new conversation to know."""

import stat
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import FileRefused, InvalidParams, ParseError
from kimi_proxy.core.types import JsonValue
from kimi_proxy.services import replacing

NAME = "project_memory.json"
MODE = 0o600
LATEST = 2**32  # seconds; what is later was not written by a clock


@dataclass(frozen=True, slots=True)
class Remembered:
    content: JsonValue = ""
    updated: float | None = None
    trouble: str = ""  # why there is nothing, if there should be


class MemoryFile:
    """Read anew each time: other processes write it too, and people edit it."""

    def __init__(self, home: Path, max_bytes: int) -> None:
        self.path = home.absolute() / NAME
        self._max_bytes = max_bytes

    def read(self) -> Remembered:
        """What cannot be read is nothing, and says why."""
        try:
            raw = replacing.read(self.path)
            if raw is None:
                return Remembered()
            if len(raw) > self._max_bytes:
                return Remembered(trouble=f"{self.path} is larger than memory.max_bytes: shorten it")
            return _remembered(jsontext.decode(raw))
        except ParseError as e:
            return Remembered(trouble=f"{self.path} is not JSON ({e}): mend it, or save anew")
        except FileRefused as e:
            return Remembered(trouble=str(e))

    def write(self, content: JsonValue, now: float) -> Remembered:
        """As a whole or not at all; what somebody broke by hand is put beside it."""
        raw = jsontext.encode({"content": content, "updated": round(now, 3)})
        if jsontext.has_halves(content):
            raise InvalidParams("content", "it has half of a surrogate pair, which is no character: leave it out")
        if len(raw) > self._max_bytes:
            raise InvalidParams("content", f"that is {len(raw)} bytes; memory.max_bytes allows {self._max_bytes}")
        if (before := replacing.read(self.path)) is not None:
            self._close_to_others()
            if self.read().trouble:
                replacing.replace(self.path.with_suffix(".damaged"), before, MODE)
        replacing.replace(self.path, raw, MODE)
        return Remembered(content, round(now, 3))

    def _close_to_others(self) -> None:
        try:
            if stat.S_IMODE(self.path.stat().st_mode) != MODE:
                self.path.chmod(MODE)
        except OSError as e:
            raise FileRefused(f"{self.path} cannot be closed to others: {e.strerror}") from e


def _remembered(value: JsonValue) -> Remembered:
    """As we write it, or as somebody else wrote it: then all of it is to be remembered."""
    match value:
        case {"content": content, "updated": int() | float() as updated} if 0 <= updated < LATEST:
            return Remembered(content, float(updated))
        case {"content": content}:
            return Remembered(content)
    return Remembered(value)
