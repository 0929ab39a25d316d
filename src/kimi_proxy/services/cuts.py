"""Every prune and mask for people to read: listed, compared with the sent text, and searched."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NotRequired, TypeAlias, TypedDict

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.servers import PRUNER, MaskingSettings
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.lines import decode_text
from kimi_proxy.core.prune import Cut, Numbering, rows_of
from kimi_proxy.features import masking
from kimi_proxy.features.pruning.explain import LineWhy
from kimi_proxy.features.recovery import EVERYTHING, Selection, check_inside
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.originals import (
    HookOutput,
    MaskedText,
    OutputParts,
    PrintedText,
    PrunedLines,
    Source,
    SummarizedHistory,
    part_starts_of,
    read_source,
)
from kimi_proxy.services.pruner import Explanation, Pruner
from kimi_proxy.services.recover import OpenOriginal, Recovery
from kimi_proxy.services.store.protocols import NEWEST, DecisionRecord, Decisions, ListedOriginal, Originals, StoredText

CHARS_PER_TOKEN = 4
SCAN = 4  # originals examined for each listed one: some were stored although nothing was cut in the end
REASONS = 3
SHOWN_CHARS = 400_000  # of one text at once
LINE_CHARS = 4000  # of one line; recovering it gives all of it
SEARCHED = 1000  # the newest originals
BATCH = 20
SEARCH_S = 1.5
EXCERPT_CHARS = 160
REMEMBERED, REMEMBERED_BYTES, REMEMBERED_S = 8, 64 * 1024**2, 300


Via: TypeAlias = Literal["pruner", "chat", "gateway", "tools", "hooks"]
CutKind: TypeAlias = Literal["prune", "mask", "output", "history"]


class CutFields(TypedDict):
    kind: CutKind
    via: Via
    why: str | None
    goal: str
    source_type: str
    server: str
    session_id: str
    preview: str
    reasons: list[str]
    blocks: int
    original_lines: int | None
    lines_cut: int | None
    chars: int | None
    tokens_before: int | None
    tokens_after: int | None


class ListedCutBody(CutFields):
    """A prune or a mask: the cut parts of a text, its origin, and the reason."""

    id: str
    created_at: str
    last_used_at: str


class CutsBody(TypedDict):
    cuts: list[ListedCutBody]
    before: int | None


class CutLineBody(TypedDict):
    line: int
    text: str
    kept: bool
    score: float
    why: str


# With "by": "lines" it has cuts and lines, with "by": "text" the two texts; both begin at the line "from".
_Parts = TypedDict(
    "_Parts",
    {
        "id": str,
        "by": Literal["lines", "text"],
        "numbering": Numbering,
        "from": int,
        "cuts": NotRequired[Sequence[Cut]],
        "lines": NotRequired[list[CutLineBody]],
        "original": NotRequired[str],
        "sent": NotRequired[str | None],
        "truncated": NotRequired[bool],
    },
)


class OneCutBody(CutFields, _Parts):
    """An original next to the sent text."""


class HitBody(TypedDict):
    id: str
    line: int
    text: str


class HitsBody(TypedDict):
    hits: list[HitBody]
    searched: int
    stopped: Literal["enough", "oldest", "time"] | None


@dataclass(frozen=True, slots=True)
class CutNote:
    """An original and its cuts, as they are listed."""

    via: Via
    kind: CutKind
    goal: str = ""
    source_type: str = ""
    server: str = ""
    session: str = ""
    cuts: tuple[Cut, ...] = ()
    lines: int | None = None
    chars: int | None = None
    tokens: tuple[int, int] | None = None
    limits: MaskingSettings | None = None


class Cuts:
    def __init__(
        self,
        originals: Originals,
        decisions: Decisions,
        pruner: Pruner,
        recovery: Recovery,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._originals = originals
        self._decisions = decisions
        self._pruner = pruner
        self._recovery = recovery
        self._now = now
        # The dashboard reads a text page by page while it is scrolled.
        self._explained: LruCache[tuple[str, str], Explanation] = LruCache(
            ttl_s=REMEMBERED_S, max_entries=REMEMBERED, max_bytes=REMEMBERED_BYTES, now=now
        )

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget the texts of a person that were looked at last; to read them again takes milliseconds."""
        self._explained.forget_matching(lambda place: place[0] == who.scope)

    async def page(self, who: Caller, limit: int, before: int | None) -> CutsBody:
        """Return the newest cuts, and the start of the next page; None if there is none."""
        found: list[ListedCutBody] = []
        at = NEWEST if before is None else before
        for _ in range(SCAN):
            originals = await self._originals.page(who, at, limit)
            for original in originals:
                at = original.seq
                if (row := _row(original)) is not None:
                    found.append(row)
                if len(found) == limit:
                    return {"cuts": found, "before": at}
            if len(originals) < limit:
                return {"cuts": found, "before": None}
        return {"cuts": found, "before": at}

    async def one(self, who: Caller, id: str, start: int, count: int) -> OneCutBody:
        """Return some lines of an original next to the sent text: each by itself if lines were cut, else two texts.

        Raise PruneIdNotFound if it is unknown or has expired, and InvalidRange if it has no such lines.
        """
        original = await self._recovery.open(who, id)
        decision = await self._decisions.of_original(who, id)
        note = describe(id, original.source, decision)
        about = _to_json(note, decision)
        about["chars"] = original.chars
        start = max(start, original.first)
        explained = await self._explain_or_leave(who, id) if note.cuts else None
        if explained is not None:
            about["original_lines"] = len(explained.texts)
            check_inside([(start, start)], 1, len(explained.texts))
            rows = list(_rows(explained.lines[start - 1 : start - 1 + count], explained.texts))
            return {
                "id": id,
                **about,
                "by": "lines",
                "numbering": original.numbering,
                "cuts": explained.cuts,
                "from": start,
                "lines": rows,
            }
        # An empty text has no lines to ask for.
        wanted = Selection(((start, start + count - 1),), first_chars=SHOWN_CHARS) if original.chars else EVERYTHING
        shown = (await original.read(wanted)).text
        sent = await self._pruner.fail_open.run("mask", _sent_text(id, original, note, decision), lambda code: None)
        return {
            "id": id,
            **about,
            "by": "text",
            "numbering": original.numbering,
            "from": start,
            "original": shown,
            "sent": None if sent is None else sent[:SHOWN_CHARS],
            "truncated": len(shown) < original.chars or len(sent or "") > SHOWN_CHARS,
        }

    async def search(self, who: Caller, wanted: str, limit: int) -> HitsBody:
        """Return lines of the newest originals that hold `wanted` in any case; `stopped` says why there may be more."""
        if not wanted.strip():
            raise InvalidParams("q", "must not be empty")
        deadline = self._now() + SEARCH_S
        hits: list[HitBody] = []
        searched = 0
        at = NEWEST
        stopped: Literal["enough", "oldest", "time"] | None = None
        while not stopped:
            batch = await self._originals.texts(who, at, BATCH)
            found = islice(_hits(batch, wanted.casefold()), limit - len(hits))
            hits += await asyncio.to_thread(list, found)
            at = batch[-1].seq if batch else 0
            searched = searched + len(batch)
            if len(hits) >= limit:
                stopped = "enough"
            elif len(batch) < BATCH:
                return {"hits": hits, "searched": searched, "stopped": None}
            elif searched >= SEARCHED:
                stopped = "oldest"
            elif self._now() >= deadline:
                stopped = "time"
        return {"hits": hits, "searched": searched, "stopped": stopped}

    async def _explain_or_leave(self, who: Caller, id: str) -> Explanation | None:
        """Return the explanation of a cut; None if it fails: the text is shown all the same."""
        work: Awaitable[Explanation | None] = self._explain(who, id)
        return await self._pruner.fail_open.run("explain", work, lambda code: None)

    async def _explain(self, who: Caller, id: str) -> Explanation:
        explained = self._explained.get((who.scope, id))
        if explained is None:
            explained = await self._pruner.explain(who, id)
            size = 4 * len(explained.question.text) + 200 * len(explained.lines)
            self._explained.put((who.scope, id), explained, size)
        return explained


def _row(original: ListedOriginal) -> ListedCutBody | None:
    """Return a list row for a cut; None if nothing was cut."""
    note = describe(original.id, read_source(original.about), original.decision)
    if note.kind == "prune" and not note.cuts:
        return None
    return {
        "id": original.id,
        "created_at": iso_time(original.created),
        "last_used_at": iso_time(original.last_used),
        **_to_json(note, original.decision),
    }


def _to_json(note: CutNote, decision: DecisionRecord | None) -> CutFields:
    before, after = (decision.tokens_before, decision.tokens_after) if decision else note.tokens or (None, None)
    return {
        "kind": note.kind,
        "via": note.via,
        "why": decision.why if decision else None,
        "goal": note.goal[:500],
        "source_type": note.source_type,
        "server": note.server,
        "session_id": decision.session if decision else note.session,
        "preview": decision.preview if decision else "",
        "reasons": list(dict.fromkeys(cut.reason for cut in note.cuts))[:REASONS],
        "blocks": len(note.cuts),
        "original_lines": note.lines,
        "lines_cut": sum(cut.count for cut in note.cuts) or None,
        "chars": note.chars,
        "tokens_before": before,
        "tokens_after": after,
    }


def _rows(rows: Sequence[LineWhy], texts: Sequence[str]) -> Iterator[CutLineBody]:
    left = SHOWN_CHARS
    for row in rows:
        text = texts[row.line - 1][:LINE_CHARS]
        left -= len(text)
        if left < 0:
            return
        yield {"line": row.line, "text": text, "kept": row.kept, "score": row.score, "why": row.why}


async def _sent_text(id: str, original: OpenOriginal, note: CutNote, decision: DecisionRecord | None) -> str | None:
    """Return the text that was sent instead of the original; None if it is unknown."""
    if decision is not None and decision.shown is not None:
        return decode_text(decision.shown)
    if note.limits is None:
        return None
    cut = masking.plan_text((await original.read(EVERYTHING)).text, note.limits, note.goal)
    return cut.render(id) if isinstance(cut, masking.MaskCut) else None


def _hits(batch: Sequence[StoredText], wanted: str) -> Iterator[HitBody]:
    for original in batch:
        text = "" if original.text is None else decode_text(original.text)
        if wanted not in text.casefold():
            continue
        part_starts = part_starts_of(read_source(original.about), text)
        for number, line in enumerate(rows_of(text, part_starts), 1):
            at = line.casefold().find(wanted)
            if at >= 0:
                yield {"id": original.id, "line": number, "text": line[max(0, at - 40) :][:EXCERPT_CHARS]}


def describe(id: str, source: Source | None, decision: DecisionRecord | None) -> CutNote:
    """Return the list fields of the original `id`; a tool result of a conversation also has a decision."""
    match source:
        case HookOutput(PrunedLines(question, cuts)):
            return replace(
                _hook_note(source), kind="prune", goal=question.goal, source_type=question.source_type, cuts=cuts
            )
        case HookOutput():
            return _hook_note(source)
        case MaskedText(server, chars, lines, limits, goal):
            tokens = None if chars is None or limits is None else _sizes(chars, limits)
            return CutNote(
                "gateway", "mask", goal, server=server, chars=chars, lines=lines, tokens=tokens, limits=limits
            )
        case SummarizedHistory(session):
            return CutNote("chat", "history", session=session)
        case PrunedLines(question, cuts, lines, tokens, session=session, origin=origin):
            is_gateway = origin.server not in ("", PRUNER)
            via: Via = "chat" if decision or session else "gateway" if is_gateway else "pruner"
            server = origin.server if is_gateway else ""
            found = CutNote(via, "prune", question.goal, question.source_type, session=session, server=server)
            return replace(found, cuts=cuts, lines=lines, tokens=tokens)
        case OutputParts():
            return CutNote("tools", "output")
        case PrintedText(what, session):
            is_chat = what == "output" and bool(decision or session)
            return CutNote("chat" if is_chat else "tools", "output", session=session)
        case None:
            return CutNote("chat" if decision else "pruner", "mask" if id.startswith("msk_") else "output")


def _hook_note(source: HookOutput) -> CutNote:
    sizes = CutNote("hooks", "output", lines=source.lines, chars=source.chars, tokens=source.tokens)
    return replace(sizes, server=source.tool, session=source.session)


def _sizes(chars: int, limits: MaskingSettings) -> tuple[int, int]:
    """Return the tokens of a masked text before and after, by its length: to count them would mean to read it."""
    return chars // CHARS_PER_TOKEN, min(chars, limits.head_chars + limits.tail_chars) // CHARS_PER_TOKEN
