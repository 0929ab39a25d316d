"""Outputs that are too long for a response: failures and outliers, else the ends; the rest is behind markers."""

import asyncio
from collections.abc import Sequence

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.markers import PruneMarker
from kimi_proxy.core.prune import Options, Origin, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.kinds import type_of
from kimi_proxy.features.records.fitting import write_by_lines
from kimi_proxy.features.records.tree import RecordGap
from kimi_proxy.services.fail_open import FailOpen
from kimi_proxy.services.originals import Keeper, PrintedText

READ_BYTES_PER_TOKEN = 16  # of an end, to find its last line in; more bytes than this a token seldom has
MAX_CHOSEN_CHARS = 2_000_000  # choosing among more would take a second and more
CLIPPED_BYTES_PER_TOKEN = 1  # of a line that does not fit as a whole


def head(raw: bytes, max_tokens: int) -> bytes:
    """Return the first lines of `raw` that have so many tokens, or what fits of the first one."""
    pieces = raw[: max_tokens * READ_BYTES_PER_TOKEN].split(b"\n")
    size = _fitting(pieces[:-1], max_tokens)
    return raw[:size] if size else text_lines.clip_utf8(raw, max_tokens * CLIPPED_BYTES_PER_TOKEN)


def tail(raw: bytes, max_tokens: int) -> bytes:
    """Return the last lines of `raw` that have so many tokens, or what fits of the last one."""
    pieces = raw[-max_tokens * READ_BYTES_PER_TOKEN :].split(b"\n")
    last, *before = reversed(pieces)
    cost = tokens.count(text_lines.decode(last))
    if before and cost <= max_tokens:
        return raw[len(raw) - len(last) - _fitting(before[:-1], max_tokens - cost) :]
    end = raw[-max_tokens * CLIPPED_BYTES_PER_TOKEN :]
    return end[next((at for at in range(min(4, len(end))) if end[at] & 0xC0 != 0x80), 0) :]


def _fitting(pieces: list[bytes], max_tokens: int) -> int:
    """Return the bytes of the first of these lines, newlines included, that have so many tokens together."""
    size = 0
    for piece, cost in zip(pieces, tokens.count_lines([text_lines.decode(piece) for piece in pieces]), strict=True):
        max_tokens -= cost
        if max_tokens < 0:
            break
        size += len(piece) + 1
    return size


async def choose(who: Caller, text: str, keeper: Keeper, max_tokens: int, origin: Origin) -> str | None:
    """Return the records of a text, or its lines about failures, that fit into that many tokens.

    None if there is nothing to choose by, or if no whole lines can be cut. Raise StoreUnavailable if it cannot be
    stored.
    """
    gaps = await asyncio.to_thread(_chosen_gaps, text, max_tokens, origin)
    if not gaps:
        return None
    return write_by_lines(
        text, gaps, await keeper.keep_text(who, text_lines.encode_text(text), PrintedText("contents"))
    )


def _chosen_gaps(text: str, max_tokens: int, origin: Origin) -> Sequence[RecordGap] | None:
    if len(text) > MAX_CHOSEN_CHARS or "\n" not in text.strip():
        return None
    id = "prn_" + "0" * 16
    before = tokens.count(text)
    room = max_tokens
    kind = type_of(origin, text)
    for _ in range(TRIES):
        found = engine.fit(Question(text, "", kind, _PLAIN, room=room), tokens_before=before)
        if found is None or not found.has_choice or found.part_starts:
            return None
        gaps = found.gaps(text)
        after = tokens.count(write_by_lines(text, gaps, id))
        if after <= max_tokens:
            return gaps
        room = int(TIGHTER * room * max_tokens / after)
    return None


TRIES, TIGHTER = 4, 0.97
_PLAIN = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)


async def fit_text(
    who: Caller,
    text: str,
    first_line: int | None,
    keeper: Keeper,
    max_tokens: int,
    fail_open: FailOpen,
    origin: Origin,
) -> str:
    """Return the response for a file's text: uncut if it fits into that many tokens, otherwise its ends.

    `first_line` is that of a window, whose lines are numbered.
    """
    parts = await asyncio.to_thread(_parts, text, max_tokens) if len(text) > max_tokens else None
    if parts is not None and first_line is None:
        fitting = await fail_open.run("choose", choose(who, text, keeper, max_tokens, origin), lambda code: None)
        if fitting is not None:
            return fitting
    if parts is not None:
        begin, middle, end, rows = parts
        try:
            prune_id = await keeper.keep_text(who, text_lines.encode_text(middle), PrintedText("contents"))
        except StoreUnavailable:
            parts = None
    if parts is None:
        return text if first_line is None else number_lines(text, first_line)
    first, count = (first_line or 1) + rows, middle.count("\n") + 1
    reason = f"lignes {first}-{first + count - 1} du fichier"
    marker = str(PruneMarker(prune_id, 1, count, reason))
    if first_line is None:
        return f"{begin}\n{marker}\n{end}"
    return f"{number_lines(begin, first_line)}\n{marker}\n{number_lines(end, first + count)}"


def _parts(text: str, max_tokens: int) -> tuple[str, str, str, int] | None:
    """Return head, middle and tail, without the newlines between them, and the lines of the head; None if all fits."""
    if len(text) <= max_tokens * READ_BYTES_PER_TOKEN and tokens.count(text) <= max_tokens:
        return None
    raw = text_lines.encode_text(text)
    begin = head(raw, max_tokens // 2)
    end = tail(raw, max_tokens // 2)
    if len(begin) + len(end) >= len(raw):
        return None
    middle = raw[len(begin) : len(raw) - len(end)].removesuffix(b"\n")
    whole = (text_lines.decode_text(part) for part in (begin.removesuffix(b"\n"), middle, end))
    return next(whole), next(whole), next(whole), begin.count(b"\n")


def number_lines(text: str, first: int) -> str:
    return text_lines.join(text_lines.with_number(first + i, line) for i, line in enumerate(text.split("\n")))
