"""Lines that a search found, read again from files that were opened safely, as the model sees them."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from kimi_proxy.core import charset
from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.proxy.search import Hit, Place
from kimi_proxy.proxy.workspace import Workspace

LINE_BYTES = 500
MAX_TEXT_CHARS = 1024**2


@dataclass(frozen=True, slots=True)
class Shown:
    text: str
    matches: int
    unread: int  # matches in files that may not be read, or changed meanwhile


def shown(hits: Sequence[Hit], workspace: Workspace, place: Place, path: str, context_lines: int) -> Shown:
    """`path:line:content` for each match, `path-line-content` for the lines around it."""
    lines: list[str] = []
    matches = unread = chars = 0
    for name, group in groupby(hits, key=lambda hit: hit.path):
        found = list(group)
        wanted = sum(hit.matches for hit in found)
        if chars > MAX_TEXT_CHARS:
            break
        relative = name.removeprefix(b"./")
        try:
            with workspace.opened(str(place.directory / os.fsdecode(relative))) as fd:
                read = [(hit, line) for hit in found if (line := _line(fd, hit)) is not None]
        except ToolFailed:
            read = []
        # A name that is not UTF-8 must not put half a character into the conversation.
        named = path if place.name else _joined(path, charset.decode(relative))
        printed = list(_printed(read, named, context_lines))
        if lines and printed and context_lines:
            lines.append("--")
        lines += printed
        chars += sum(map(len, printed))
        here = sum(hit.matches for hit, _ in read)
        matches, unread = matches + here, unread + wanted - here
    return Shown("\n".join(lines), matches, unread)


def _printed(read: Sequence[tuple[Hit, str]], name: str, context_lines: int) -> Iterator[str]:
    before: int | None = None
    for hit, line in read:
        if context_lines and before is not None and hit.line > before + 1:
            yield "--"
        before = hit.line
        sign = ":" if hit.matches else "-"
        yield f"{name}{sign}{hit.line}{sign}{line}"


def _line(fd: int, hit: Hit) -> str | None:
    """The line, or what fits around its match; None if no line begins there any more."""
    if hit.offset and _bytes(fd, hit.offset - 1, 1) != b"\n":
        return None
    start = _bytes(fd, hit.offset, LINE_BYTES + 1)
    whole, newline, _ = start.partition(b"\n")
    if newline or len(start) <= LINE_BYTES:
        return charset.decode(whole)
    return _around(fd, hit)


def _around(fd: int, hit: Hit) -> str:
    skipped = max(0, hit.column - 1 - LINE_BYTES // 2)
    raw = _bytes(fd, hit.offset + skipped, LINE_BYTES + 4)
    piece, newline, _ = raw.partition(b"\n")
    whole_characters = next((at for at in range(min(4, len(piece))) if piece[at] & 0xC0 != 0x80), 0)
    piece = piece[whole_characters:] if skipped else piece
    clipped = charset.clip(piece, LINE_BYTES)
    ends = bool(newline) and clipped == piece
    return f"{'…' if skipped else ''}{charset.decode(clipped)}{'' if ends else '…'}"


def _bytes(fd: int, offset: int, size: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, size)


def _joined(path: str, relative: str) -> str:
    return relative if PurePath(path) == PurePath() else f"{path.rstrip('/')}/{relative}"
