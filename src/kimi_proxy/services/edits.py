"""What we do to one file, and how we take it back when the file has changed since."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.editing import block, servers
from kimi_proxy.features.editing.servers import Format


class Edit(Protocol):
    @property
    def path(self) -> Path: ...
    @property
    def lock(self) -> Path | None: ...

    def done(self, text: str) -> str:
        """`text` with our part in it."""

    def undone(self, text: str, before: str) -> str:
        """`text` without our part, or with what `before` had in its place."""


@dataclass(frozen=True, slots=True)
class ServerEdit:
    """Our server among those of a client."""

    path: Path
    form: Format
    entry: JsonObject
    lock: Path | None = None

    def done(self, text: str) -> str:
        return servers.with_entry(self.form, text, self.entry)

    def undone(self, text: str, before: str) -> str:
        previous = servers.entry(self.form, before) if before else None
        return servers.restored(self.form, text, previous)


@dataclass(frozen=True, slots=True)
class RulesEdit:
    """Our block in an agent's instructions; a new file begins with `start`."""

    path: Path
    block: str
    start: str = ""
    lock: Path | None = None

    def done(self, text: str) -> str:
        return block.put(text or self.start, self.block)

    def undone(self, text: str, before: str) -> str:
        rest = block.remove(text)
        return "" if not before and rest.strip() == self.start.strip() else rest
