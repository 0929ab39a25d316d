"""Originals read back, in one place for every way in: all of them, some of their lines, or some of their characters.

An original is one text, or the list of the parts of an output that was too long for one. Its numbers count what the
answer counted in which they were given out: lines, or the parts of a text of very long lines.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from kimi_proxy.core.aside import SPLIT_CHARS, aside
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import InvalidRange, KimiProxyError, PruneIdNotFound
from kimi_proxy.core.lines import decode_text
from kimi_proxy.core.markers import is_id
from kimi_proxy.core.prune import Numbering, rows_of
from kimi_proxy.features.recovery import EVERYTHING, MAX_CHARS, LineRange, PickedLines, Selection, check_inside
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.originals import (
    UNKNOWN_CHARS,
    OutputParts,
    Source,
    part_starts_of,
    read_parts,
    read_source,
)
from kimi_proxy.services.store.notes import session_of
from kimi_proxy.services.store.protocols import Original, Originals

_CONTENT_HASH = re.compile(r"[0-9a-f]{64}")
READ_S = 30.0  # for one request: ranges that take longer are too many


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Some of an original, exactly as it was."""

    text: str
    numbering: Numbering
    ranges: tuple[LineRange, ...]  # that `text` holds, in its order; none where characters were asked for
    last: int  # line of the original
    chars: int  # of the original


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of an original: its lines, their numbers both included, and how to get its text."""

    first: int
    last: int
    chars: int
    load: Callable[[], Awaitable[str]]
    part_starts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenOriginal:
    """An original, found: its pieces follow each other."""

    id: str
    session: str  # to whose conversation it belongs; empty if to none
    source: Source | None
    pieces: tuple[Piece, ...]

    @property
    def first(self) -> int:
        """Return the number of its first line: of an output in parts, that in the whole output."""
        return self.pieces[0].first

    @property
    def last(self) -> int:
        return self.pieces[-1].last

    @property
    def chars(self) -> int:
        return sum(piece.chars for piece in self.pieces)

    @property
    def numbering(self) -> Numbering:
        return "parts" if self.pieces[0].part_starts else "lines"

    @property
    def all_lines(self) -> tuple[LineRange, ...]:
        return ((self.first, self.last),) if self.last >= self.first else ()

    async def texts(self) -> AsyncIterator[str]:
        """Yield all of it piece by piece, because it may be long."""
        for piece in self.pieces:
            yield await piece.load()

    async def read(self, wanted: Selection) -> ReadBack:
        """Return what is wanted. Raise InvalidRange if there is no such line or character, or if it is too much."""
        ranges = wanted.lines or (() if wanted.chars is not None else self.all_lines)
        ranges = tuple((start or self.first, end) for start, end in ranges)
        check_inside(ranges, self.first, self.last)
        ranges = tuple((start, min(end, self.last)) for start, end in ranges)
        try:
            async with asyncio.timeout(READ_S):
                text = await self._text(wanted, ranges)
        except TimeoutError:
            raise InvalidRange(f"this took longer than {READ_S:g} s: request fewer lines at a time") from None
        return ReadBack(text, self.numbering, ranges, self.last, self.chars)

    async def _text(self, wanted: Selection, ranges: Sequence[LineRange]) -> str:
        if wanted.chars is not None:
            return await self._characters(*wanted.chars)
        if wanted.lines or wanted.with_numbers:
            return await self._lines(ranges, wanted)
        if len(self.pieces) > 1 and self.chars > MAX_CHARS:
            too_long = f"this output has {self.chars} characters, too many for one answer"
            raise InvalidRange(f"{too_long}: request some of its lines, {self.first} to {self.last}", self.last)
        return "".join([text async for text in self.texts()])

    async def _characters(self, start: int, end: int) -> str:
        if start > self.chars:
            raise InvalidRange(f"start_char {start} is beyond the end: the text has {self.chars} characters")
        if min(end, self.chars) - start > MAX_CHARS:
            raise InvalidRange(f"request at most {MAX_CHARS} characters at a time")
        found: list[str] = []
        at = 0
        for piece in self.pieces:
            if at < end and start < at + piece.chars:
                found.append((await piece.load())[max(0, start - at) : end - at])
            at += piece.chars
        return "".join(found)

    async def _lines(self, ranges: Sequence[LineRange], wanted: Selection) -> str:
        """Return the ranges in their order; each piece is loaded once for all of them."""
        is_parts = self.numbering == "parts"
        picked = PickedLines(ranges, wanted.with_numbers and not is_parts, "" if is_parts else "\n")
        for piece in self.pieces:
            if wanted.first_chars is not None and picked.chars >= wanted.first_chars:
                break
            if any(start <= piece.last and piece.first <= end for start, end in ranges):
                text = await piece.load()
                await aside(piece.chars <= SPLIT_CHARS, _pick, picked, piece, text)
        return (await aside(picked.chars <= SPLIT_CHARS, picked.text))[: wanted.first_chars]


def _pick(picked: PickedLines, piece: Piece, text: str) -> None:
    picked.add(piece.first, rows_of(text, piece.part_starts))


class Recovery:
    """Finds originals by their ids, counts what is read of them, and deletes them."""

    def __init__(self, originals: Originals, metrics: Metrics | None = None) -> None:
        self._originals = originals
        self._metrics = metrics

    async def read(self, who: Caller, id: str, wanted: Selection = EVERYTHING) -> ReadBack:
        """Return what is wanted of an original. Raise as `open` and `OpenOriginal.read`."""
        try:
            found = await (await self.open(who, id)).read(wanted)
        except KimiProxyError as e:
            self.count(e.code)
            raise
        self.count("ok")
        return found

    async def open(self, who: Caller, id: str) -> OpenOriginal:
        """Return the original of an id, or a person's own of a content hash: the SHA-256 of its text.

        Raise PruneIdNotFound if it was never given out here, or has expired.
        """
        if _CONTENT_HASH.fullmatch(id):
            found = await self._originals.find_hash(who, bytes.fromhex(id))
            if found is None:
                raise PruneIdNotFound(id, "unknown")
            return await self.open(who, found)
        if not is_id(id):
            raise PruneIdNotFound(id, "unknown")
        original = await self._originals.get(who, id)
        source = read_source(original.about)
        pieces = await (
            self._parts(who, original, source) if isinstance(source, OutputParts) else _whole(original, source)
        )
        return OpenOriginal(id, session_of(original.about), source, tuple(pieces))

    async def delete(self, who: Caller, id: str) -> None:
        """Delete an original with its parts: its id is "expired" from then on. Raise PruneIdNotFound as `open`."""
        if not is_id(id):
            raise PruneIdNotFound(id, "unknown")
        note = await self._originals.note(who, id)
        source = None if note is None else read_source(note)
        parts = source.ids if isinstance(source, OutputParts) else ()
        if not await self._originals.delete(who, [id, *parts]):
            await self._originals.get(who, id)  # raises for the reason that it is not there

    def count(self, outcome: str) -> None:
        if self._metrics is not None:
            self._metrics.recoveries.labels(outcome).inc()

    async def _parts(self, who: Caller, listed: Original, source: OutputParts) -> list[Piece]:
        parts = read_parts(listed, source)
        # What is read of an output keeps all of it alive.
        await self._originals.live(who, [part.id for part in parts])
        pieces: list[Piece] = []
        for part in parts:
            load = partial(self._load, who, part.id, listed.id)
            chars = len(await load()) if part.chars == UNKNOWN_CHARS else part.chars
            pieces.append(Piece(part.first, part.last, chars, load))
        return pieces

    async def _load(self, who: Caller, id: str, listed_id: str) -> str:
        try:
            raw = (await self._originals.get(who, id)).text
        except PruneIdNotFound as e:
            raise PruneIdNotFound(listed_id, e.reason) from e
        return await aside(len(raw) <= SPLIT_CHARS, decode_text, raw)


async def _whole(original: Original, source: Source | None) -> list[Piece]:
    raw = original.text
    text = await aside(len(raw) <= SPLIT_CHARS, decode_text, raw)
    starts = await aside(len(raw) <= SPLIT_CHARS, part_starts_of, source, text)
    last = len(starts) or (text.count("\n") + 1 if text else 0)

    async def load() -> str:
        return text

    return [Piece(1, last, len(text), load, starts)]
