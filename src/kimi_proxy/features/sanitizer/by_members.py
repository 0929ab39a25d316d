"""Shortens a JSON text so that it stays JSON: records that are like the others go, long strings are cut inside."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from msgspec import Raw

from kimi_proxy.core import deepjson, rawjson, tokens
from kimi_proxy.core.markers import MaskMarker, PruneMarker, clean_reason
from kimi_proxy.features.sanitizer.kinds import kind_of
from kimi_proxy.features.sanitizer.output import Origin
from kimi_proxy.features.sanitizer.ratios import ratio_of
from kimi_proxy.features.sanitizer.runs import Run, is_long, runs
from kimi_proxy.features.sanitizer.shortened import Hidden, Names, Shortened, Task

BYTES_PER_TOKEN = 3

Inside: TypeAlias = Callable[[Task, Names, Callable[[], None]], Shortened]
Edit: TypeAlias = tuple[int, int, bytes]

_REST_OF_LINE = re.compile(rb"[ \t]*,?[ \t]*\n")
_PRINTED = Origin(tool="output")  # a string in an answer is usually what something printed


@dataclass(frozen=True, slots=True)
class _Found:
    runs: tuple[Run, ...]
    strings: tuple[tuple[int, int], ...]


def shorten(task: Task, names: Names, before: int, check: Callable[[], None], inside: Inside) -> Shortened:
    """`inside` shortens a long string of the text."""
    whole = Shortened(task.text, "nothing_to_cut", (), before, before)
    raw = _bytes(task.text)
    top = rawjson.view(raw)
    if top is None:
        return replace(whole, why="unreadable_json")
    found = _look(top, raw, task, before, check)
    by_lines = all(_fills_lines(run, raw) for run in found.runs)
    own = Hidden(names.new("prn" if found.runs and by_lines else "msk"), task.text)
    edits, hidden = _strings(raw, found.strings, task, names, check, inside)
    hint = f" {task.hint.replace('{id}', own.id)}" if task.hint else ""
    for nth, run in enumerate(found.runs):
        marker = _by_lines(run, raw, own.id) if by_lines else _by_chars(run, raw, task.text, own.id)
        edits.append((run.start, run.end, _member(marker + (hint if nth == 0 else ""), run)))
    shown = _edited(raw, edits).decode()
    after = tokens.count(shown)
    if not edits or after >= before or not deepjson.is_json(shown):
        return whole
    return Shortened(shown, "pruned", (own, *hidden), before, after)


def _bytes(text: str) -> bytes:
    """None of a text that holds half of a surrogate pair: nobody can read that as JSON."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return b""


def _look(top: Raw, raw: bytes, task: Task, before: int, check: Callable[[], None]) -> _Found:
    """The runs of records that may go, and the long strings outside of them."""
    long_bytes = BYTES_PER_TOKEN * task.threshold_tokens
    ratio = ratio_of("json", before, task.is_unread)
    cut: list[Run] = []
    strings: list[tuple[int, int]] = []
    views = [top]
    while views:
        view = views.pop()
        start, size = rawjson.start(view, raw), rawjson.size(view)
        if size <= long_bytes:
            continue
        if raw[start : start + 1] == b'"':
            strings.append((start, start + size))
            continue
        members = rawjson.container(view)
        found = tuple(runs(members, raw, task.goal, ratio, check)) if is_long(members) else ()
        cut += found
        if not found:
            views += members.values() if isinstance(members, dict) else members
    return _Found(tuple(sorted(cut, key=lambda run: run.start)), tuple(sorted(strings)))


def _strings(
    raw: bytes, spans: Sequence[tuple[int, int]], task: Task, names: Names, check: Callable[[], None], inside: Inside
) -> tuple[list[Edit], list[Hidden]]:
    edits: list[Edit] = []
    hidden: list[Hidden] = []
    for start, end in spans:
        text = str(deepjson.decode(raw[start:end]))
        shorter = inside(replace(task, text=text, kind=kind_of(_PRINTED, text)), names, check)
        token = json.dumps(shorter.shown, ensure_ascii=raw.isascii()).encode()
        if shorter.hidden and len(token) < end - start:
            edits.append((start, end, token))
            hidden += shorter.hidden
    return edits, hidden


def _fills_lines(run: Run, raw: bytes) -> bool:
    """Whether nothing else stands on the lines of a run: then they can be told, and read back, by their numbers."""
    line = raw.rfind(b"\n", 0, run.start) + 1
    return line > 0 and not raw[line : run.start].strip() and _REST_OF_LINE.match(raw, run.end) is not None


def _by_lines(run: Run, raw: bytes, prune_id: str) -> str:
    first = raw.count(b"\n", 0, run.start) + 1
    last = first + raw.count(b"\n", run.start, run.end)
    return str(PruneMarker(prune_id, first, last, clean_reason(f"{run.count} éléments semblables")))


def _by_chars(run: Run, raw: bytes, text: str, mask_id: str) -> str:
    """The hidden characters, as every masking marker tells them, and which members they are."""
    start = len(raw[: run.start].decode())
    end = start + len(raw[run.start : run.end].decode())
    marker = str(MaskMarker(mask_id, len(text), start, len(text) - end)).strip()
    return f"{marker} éléments {run.first}-{run.first + run.count - 1} ({run.count})"


def _member(marker: str, run: Run) -> bytes:
    return json.dumps(marker, ensure_ascii=False).encode() + (b": null" if run.of_object else b"")


def _edited(raw: bytes, edits: Sequence[Edit]) -> bytes:
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces += (raw[at:start], new)
        at = end
    return b"".join((*pieces, raw[at:]))
