"""Turning a text into an original: its lookup key, its source, and its owner.

Its note contains the source, which is used to list and explain a cut. The same question with the same
outcome makes the same note: nothing in it depends on the time or the load. An output that is too
long for one original is kept in parts, and read back by the line numbers of the whole.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ValidationError

from kimi_proxy.core import json, markers
from kimi_proxy.core.aside import HASHED_BYTES, aside
from kimi_proxy.core.caller import Caller, person_scope
from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.config.servers import MaskingSettings
from kimi_proxy.core.errors import InvalidParams, ParseError, StoreUnavailable
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.lines import decode_text, encode_text, join, split
from kimi_proxy.core.markers import PruneMarker, new_id
from kimi_proxy.core.prune import CallContext, Cut, Options, Pruned, Question, SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.records.read import read
from kimi_proxy.features.records.tree import is_one_line, part_starts
from kimi_proxy.services.store.protocols import Original, Originals, Store

if TYPE_CHECKING:  # a command that prunes does not load the sanitizer
    from kimi_proxy.features.sanitizer.shorten import Hidden

GOAL_MAX_CHARS = 10_000


def fingerprint(question: Question, text: bytes, config: PrunerSettings) -> bytes:
    """Return 32 bytes that depend on all that may change the answer, and not on the time that it may take."""
    options = question.options
    is_local = config.backend == "heuristic"
    endpoint = config.deepinfra_endpoint_url.get_secret_value()
    backend = "heuristic" if is_local else ["deepinfra", endpoint, config.deepinfra_max_docs]
    identity = json.encode(
        [
            engine.VERSION,
            backend,
            question.goal,
            question.source_type,
            options.max_prune_ratio,
            options.min_keep_lines,
            options.annotate_lines,
            options.include_markers,
            question.room,
        ]
    )
    digest = sha256(len(identity).to_bytes(8, "big") + identity)
    digest.update(text)
    return digest.digest()


def text_fingerprint(*parts: bytes) -> bytes:
    """Return the same 32 bytes for the same parts, and for no others."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()


def key_of(kind: Literal["output", "hook", "mask", "history"], raw: bytes, place: bytes = b"") -> bytes:
    """Return the key of a text that was cut without a question."""
    return sha256(kind.encode() + b"\0" + place + raw).digest()


PREVIEW_CHARS = 200


def preview_of(raw: bytes) -> str:
    """Return the first characters of a text, as every database can store them."""
    text = raw[: 4 * PREVIEW_CHARS].decode("utf-8", "replace")[:PREVIEW_CHARS]
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


# The origin of an original.

PARTS = "parts"


@dataclass(frozen=True, slots=True)
class ToolOrigin:
    """The MCP server and its tool whose text it is; both empty for any other."""

    server: str = ""
    tool: str = ""

    def to_note(self) -> Mapping[str, object]:
        return {name: value for name, value in (("server", self.server), ("tool", self.tool)) if value}


NO_ORIGIN = ToolOrigin()


@dataclass(frozen=True, slots=True)
class PrunedLines:
    """A text whose lines were cut for a goal: by the pruner, or with a session in that conversation."""

    question: Question  # its text is not in the note
    cuts: tuple[Cut, ...]
    lines: int | None
    tokens: tuple[int, int] | None = None  # before and after
    backend: str = "heuristic"
    warnings: tuple[str, ...] = ()
    session: str = ""
    part_starts: tuple[int, ...] | None = ()  # of a text that is counted in parts; None: the note does not say
    origin: ToolOrigin = NO_ORIGIN

    @classmethod
    def of(cls, question: Question, pruned: Pruned, backend: str, origin: ToolOrigin = NO_ORIGIN) -> "PrunedLines":
        cuts = tuple(a.cut for a in pruned.annotations)
        tokens = (pruned.tokens_before, pruned.tokens_after)
        return cls(
            question,
            cuts,
            lines=pruned.original_lines,
            tokens=tokens,
            backend=backend,
            warnings=pruned.warnings,
            part_starts=pruned.part_starts,
            origin=origin,
        )

    def to_note(self) -> Mapping[str, object]:
        question = self.question
        (before, after) = self.tokens or (0, 0)
        return {
            "goal": question.goal[:GOAL_MAX_CHARS],
            "source_type": question.source_type,
            "options": asdict(replace(question.options, timeout_ms=0)),
            "cuts": [asdict(cut) for cut in self.cuts],
            "stats": {
                "backend": self.backend,
                "original_lines": self.lines,
                "pruned_lines": sum(cut.count for cut in self.cuts),
                "tokens_est_before": before,
                "tokens_est_after": after,
            },
            "warnings": list(self.warnings),
            # Later versions may divide the text elsewhere: the numbers that were given out stay what they are.
            "part_chars": [end - start for start, end in pairwise(self.part_starts or ())],
            **({"context": asdict(question.context)} if question.context else {}),
            **({"session": self.session} if self.session else {}),
            **self.origin.to_note(),
        }


@dataclass(frozen=True, slots=True)
class PrintedText:
    """A tool result, or a part of it; with a session it belongs to that conversation."""

    what: str = "output"
    session: str = ""

    def to_note(self) -> Mapping[str, object]:
        return {"what": self.what} | ({"session": self.session} if self.session else {})


@dataclass(frozen=True, slots=True)
class OutputParts:
    """The list of the parts of an output that is too long for one original, and the size of each."""

    ids: tuple[str, ...] = ()  # none of both in a note of an earlier version
    chars: tuple[int, ...] = ()

    def to_note(self) -> Mapping[str, object]:
        return {"what": PARTS, "ids": list(self.ids), "chars": list(self.chars)}


@dataclass(frozen=True, slots=True)
class HookOutput:
    """A tool result that a hook received."""

    cut: PrunedLines | PrintedText
    tool: str
    session: str
    why: str
    chars: int | None
    lines: int | None
    tokens: tuple[int, int] | None

    def to_note(self) -> Mapping[str, object]:
        before, after = self.tokens or (0, 0)
        return {
            **self.cut.to_note(),
            "door": "hooks",
            "tool": self.tool,
            "session": self.session,
            "why": self.why,
            "chars": self.chars,
            "lines": self.lines,
            "tokens_before": before,
            "tokens_after": after,
        }


@dataclass(frozen=True, slots=True)
class MaskedText:
    """A long text in an answer of an MCP server; the same limits always produce the same mask."""

    server: str
    chars: int | None = None
    lines: int | None = None
    limits: MaskingSettings | None = None
    goal: str = ""
    tool: str = ""  # whose answer it stood in

    def to_note(self) -> Mapping[str, object]:
        limits = self.limits and self.limits.model_dump(exclude={"enabled"})
        size = {"chars": self.chars, "lines": self.lines}
        tool = {"tool": self.tool} if self.tool else {}
        return {"what": "mask", "server": self.server, **tool, **size, "limits": limits, "goal": self.goal}


@dataclass(frozen=True, slots=True)
class SummarizedHistory:
    """Messages of a conversation that a summary replaced."""

    session: str

    def to_note(self) -> Mapping[str, object]:
        return {"what": "history", "session": self.session}


Source: TypeAlias = PrunedLines | PrintedText | OutputParts | HookOutput | MaskedText | SummarizedHistory


def hidden_source(hidden: "Hidden", goal: str, session: str = "") -> PrunedLines | PrintedText:
    """Return the source of a text that a conversation does not show, or not all of it."""
    if hidden.source_type is None:
        return PrintedText(session=session)
    options = Options(hidden.max_prune_ratio, 0, 0, annotate_lines=False, include_markers=True)
    question = Question("", goal, hidden.source_type, options, hidden.context)
    return PrunedLines(question, hidden.cuts, hidden.text.count("\n") + 1, session=session)


def read_source(note: bytes) -> Source | None:
    """Return the origin of an original; None if its note does not contain one."""
    try:
        value = json.decode(note)
        return _source(value) if isinstance(value, Mapping) else None
    except (ParseError, ValidationError):
        return None


def _source(value: Mapping[str, JsonValue]) -> Source | None:
    session = str(value.get("session", ""))
    match value:
        case {"door": "hooks", **rest}:
            # The tool is the hook's; that of a gateway's server would stand beside the cut.
            cut = _source({name: each for name, each in rest.items() if name != "tool"})
            tokens = _pair(rest.get("tokens_before"), rest.get("tokens_after"))
            sizes = _number(rest.get("chars")), _number(rest.get("lines")), tokens
            inner = cut if isinstance(cut, PrunedLines | PrintedText) else PrintedText(session=session)
            return HookOutput(inner, str(rest.get("tool", "")), session, str(rest.get("why", "")), *sizes)
        case {"what": "mask", "server": str(server), "limits": dict(limits), **rest}:
            masked = MaskingSettings.model_validate(limits)
            size = _number(rest.get("chars")), _number(rest.get("lines"))
            return MaskedText(server, *size, masked, str(rest.get("goal", "")), str(rest.get("tool", "")))
        case {"what": "mask", "server": str(server)}:
            return MaskedText(server)
        case {"what": "history"}:
            return SummarizedHistory(session)
        case {"what": "parts", "ids": list(ids), "chars": list(chars)}:
            return OutputParts(tuple(map(str, ids)), tuple(size for size in chars if isinstance(size, int)))
        case {"what": "parts"}:
            return OutputParts()
        case {"what": str(what)}:
            return PrintedText(what, session)
        case {"stats": dict(stats)}:
            note = PruneNote.model_validate(value)
            return PrunedLines(
                note.question,
                tuple(note.cuts),
                _number(stats.get("original_lines")),
                _pair(stats.get("tokens_est_before") or None, stats.get("tokens_est_after")),
                session=session,
                part_starts=note.part_starts,
                origin=ToolOrigin(str(value.get("server", "")), str(value.get("tool", ""))),
            )
    return None


def _number(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None


def _pair(before: JsonValue, after: JsonValue) -> tuple[int, int] | None:
    return (before, after) if isinstance(before, int) and isinstance(after, int) else None


class PruneNote(BaseModel):
    """The explanation in the note stored with a pruned original."""

    goal: str
    source_type: SourceType
    options: Options
    cuts: list[Cut]
    context: CallContext | None = None
    part_chars: list[int] | None = None

    @property
    def part_starts(self) -> tuple[int, ...] | None:
        """Return where each part begins; empty where lines are counted, None in a note of an earlier version."""
        return None if self.part_chars is None else _starts(self.part_chars)

    @property
    def question(self) -> Question:
        """The question, without its text."""
        return Question("", self.goal, self.source_type, self.options, self.context)


def decode_note(note: bytes, prune_id: str) -> PruneNote:
    """Return what explains the original `prune_id`; raise InvalidParams if it was not pruned for a goal."""
    try:
        return PruneNote.model_validate(json.decode(note))
    except (ParseError, ValidationError) as e:
        raise InvalidParams("prune_id", f"{prune_id} was not pruned for a goal, so there is nothing to explain") from e


def _starts(part_chars: Sequence[int]) -> tuple[int, ...]:
    """Return where parts begin, of which all but the last have these lengths."""
    return tuple(accumulate(part_chars, initial=0)) if part_chars else ()


def part_starts_of(source: Source | None, text: str) -> tuple[int, ...]:
    """Return where the parts begin that the answer for a text counted; none if it counted lines."""
    match source:
        case PrunedLines(cuts=cuts, part_starts=starts) | HookOutput(PrunedLines(cuts=cuts, part_starts=starts)):
            if starts is None and cuts and is_one_line(text):  # by an earlier version, which did not note them
                root = read(text)
                return () if root is None else tuple(part_starts(root))
            return starts or ()
    return ()


class Keeper:
    """Keeps texts, each under the id that its key was given before, or a new one. No cut is made before it returns."""

    def __init__(self, originals: Originals) -> None:
        self._originals = originals

    async def id_for(self, who: Caller, key: bytes) -> str:
        """Return the live id of the original stored under `key`, or a new id."""
        try:
            found = await self._originals.find(who, key)
        except StoreUnavailable:
            found = None
        return found or new_id("prn")

    async def keep(self, who: Caller, id: str, key: bytes, text: bytes, source: Source) -> None:
        """Return once `text` is on disk; raise StoreUnavailable if it is not."""
        note = dict(source.to_note())
        if who.person_id and who.scope != person_scope(who.person_id):
            note["person"] = who.person_id  # a scope that a team shares does not say whose text it is
        # The preview of a tool result in a chat stands in its decision.
        if not note.get("session") or isinstance(source, SummarizedHistory):
            note["preview"] = preview_of(text)
        await self._originals.keep(Original(id, who.scope, key, text, json.encode(note), who.person_id))

    async def keep_hidden(self, who: Caller, hidden: "Hidden", place: bytes, goal: str, session: str) -> None:
        """Keep a text that the conversation does not show, found by its place there. Raise as `keep` does."""
        raw = encode_text(hidden.text)
        key = await aside(len(raw) <= HASHED_BYTES, key_of, "output", raw, place)
        await self.keep(who, hidden.id, key, raw, hidden_source(hidden, goal, session))

    async def keep_text(self, who: Caller, text: bytes, source: PrintedText | OutputParts) -> str:
        """Store `text` under a new id, and return the id."""
        what = source.what if isinstance(source, PrintedText) else PARTS
        key = await asyncio.to_thread(text_fingerprint, what.encode(), text)
        prune_id = await self.id_for(who, key)
        await self.keep(who, prune_id, key, text, source)
        return prune_id


class DeletedTexts(NamedTuple):
    originals: int
    decisions: int


async def delete_texts(store: Store, who: Caller, sessions: Collection[str] | None) -> DeletedTexts:
    """Delete the decisions and facts of these sessions, or of all (None), and the originals that only they use.

    Return how many went. Sessions themselves go last: a deletion that was interrupted can be repeated.
    """
    noted = await store.originals.of_sessions(who, sessions)
    sole = await store.decisions.sole_originals(who, sessions, noted)
    deleted = await store.originals.delete(who, sole)
    decisions = await store.decisions.forget_sessions(who, sessions)
    await store.facts.forget_sessions(who, sessions)
    return DeletedTexts(len(deleted), decisions)


REST_OF_OUTPUT = "suite de la sortie"
UNKNOWN_CHARS = -1


@dataclass(frozen=True, slots=True)
class KeptPart:
    """A part of an output that is too long for one original."""

    id: str
    first: int  # lines of the whole output, both included; where a line is cut, both parts have it
    last: int
    chars: int


async def keep_parts(who: Caller, keeper: Keeper, parts: AsyncIterator[bytes], first_line: int) -> str | None:
    """Keep parts of an output that follow each other, and return a marker for all of them; None if there are none.

    Raise StoreUnavailable if they cannot be kept.
    """
    kept: list[KeptPart] = []
    first = first_line
    newlines = 0
    async for part in parts:
        id = await keeper.keep_text(who, part, PrintedText())
        newlines = part.count(b"\n")
        kept.append(KeptPart(id, first, first + newlines - part.endswith(b"\n"), len(decode_text(part))))
        first += newlines
    if not kept:
        return None
    if len(kept) == 1:
        return str(PruneMarker(kept[0].id, 1, newlines + 1, REST_OF_OUTPUT))
    table = join([str(PruneMarker(part.id, part.first, part.last, REST_OF_OUTPUT)) for part in kept])
    source = OutputParts(tuple(part.id for part in kept), tuple(part.chars for part in kept))
    id = await keeper.keep_text(who, table.encode(), source)
    return str(PruneMarker(id, kept[0].first, kept[-1].last, f"{REST_OF_OUTPUT}, {len(kept)} parties"))


def read_parts(listed: Original, source: OutputParts) -> list[KeptPart]:
    """Return the parts that an original lists, one marker a line."""
    found = [marker for line in split(decode_text(listed.text)) if (marker := markers.read(line)) is not None]
    sizes = source.chars or [UNKNOWN_CHARS] * len(found)
    return [
        KeptPart(marker.prune_id, marker.start, marker.end, chars) for marker, chars in zip(found, sizes, strict=True)
    ]
