"""An output too long to show: its head and its tail, and between them the way to every byte of the middle."""

import asyncio
from collections.abc import AsyncIterator

from kimi_proxy.core import charset
from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.markers import PruneMarker
from kimi_proxy.proxy.spool import TAIL_BYTES, Spool
from kimi_proxy.services.keeping import Keeper

SHOWN_BYTES = 256 * 1024
WHOLE_BYTES = 4 * 1024**2  # without a store, outputs up to here go out whole
PART_BYTES = 4 * 1024**2
LISTED_PARTS = 8  # more parts are listed in an original of their own

_END_BYTES = SHOWN_BYTES // 2


async def shown(spool: Spool, keeper: Keeper) -> str:
    """The whole output, or its two ends if it is long."""
    if spool.size <= SHOWN_BYTES:
        return charset.decode(spool.end(spool.size))
    try:
        return await _abbreviated(spool, keeper)
    except StoreUnavailable as e:
        if spool.size <= WHOLE_BYTES and not spool.lost:
            return charset.decode(spool.end(spool.size))
        head, tail = _ends(spool)
        missing = spool.size - len(head) - len(tail)
        return _joined(head, f"[kimi-proxy] {missing} bytes are missing here: {e}", tail)


async def _abbreviated(spool: Spool, keeper: Keeper) -> str:
    head, tail = _ends(spool)
    end = min(spool.kept, spool.size - len(tail))
    markers = [await _shelved(part, keeper) async for part in _parts(spool, len(head), end)]
    if len(markers) > LISTED_PARTS:
        contents = await keeper.shelve(text_lines.join(markers).encode(), "contents")
        markers = [_marker(contents, len(markers), f"sommaire de {len(markers)} parties de la sortie")]
    if spool.lost:
        why = "the disk was full" if spool.full else "tools.max_output_bytes was reached"
        markers.append(f"[kimi-proxy] {spool.lost} bytes of output were not kept here: {why}")
    return _joined(head, text_lines.join(markers), tail)


def _ends(spool: Spool) -> tuple[bytes, bytes]:
    """Whole lines from the start and from the end, or what fits of lines that are too long."""
    head = spool.read(0, _END_BYTES + 3)
    cut = head.rfind(b"\n", 0, _END_BYTES)
    head = head[: cut + 1] if cut >= 0 else charset.clip(head, _END_BYTES)
    if spool.kept < spool.size:  # what came after the kept part is nowhere else: none of it may be trimmed
        return head, spool.end(TAIL_BYTES)
    tail = spool.end(_END_BYTES)
    return head, tail[_start_of_text(tail) :]


def _start_of_text(tail: bytes) -> int:
    """Where the first whole line begins, or at least the first whole character."""
    newline = tail.find(b"\n", 0, len(tail) - 1)
    if newline >= 0:
        return newline + 1
    return next((at for at in range(min(4, len(tail))) if tail[at] & 0xC0 != 0x80), 0)


async def _parts(spool: Spool, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        raw = await asyncio.to_thread(spool.read, start, min(PART_BYTES + 3, end - start))
        part = raw
        if end - start > PART_BYTES:
            newline = raw.rfind(b"\n", 0, PART_BYTES)
            part = raw[: newline + 1] if newline >= 0 else charset.clip(raw, PART_BYTES)
        yield await asyncio.to_thread(_as_utf8, part)
        start += len(part)


def _as_utf8(part: bytes) -> bytes:
    return charset.decode(part).encode()


async def _shelved(part: bytes, keeper: Keeper) -> str:
    prune_id = await keeper.shelve(part, "output")
    return _marker(prune_id, part.count(b"\n") + 1, "suite de la sortie")


def _marker(prune_id: str, lines: int, reason: str) -> str:
    return str(PruneMarker(prune_id, 1, lines, reason))


def _joined(head: bytes, middle: str, tail: bytes) -> str:
    gap = "" if head.endswith(b"\n") else "\n"
    return f"{charset.decode(head)}{gap}{middle}\n{charset.decode(tail)}"
