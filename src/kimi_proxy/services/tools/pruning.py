"""Pruning the output of an agent tool for a question: here, or by a swe-pruner server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.addresses import Address
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.sections import ToolSettings
from kimi_proxy.core.errors import PruneFailed, WarningCode
from kimi_proxy.core.lines import encode_text
from kimi_proxy.core.prune import Annotation, Cut, Options, Origin, Pruned, Question, rows_of
from kimi_proxy.features import recovery
from kimi_proxy.features.pruning import source_type
from kimi_proxy.features.pruning.engine import annotate, render
from kimi_proxy.features.pruning.kinds import type_of
from kimi_proxy.features.pruning.room import room_for
from kimi_proxy.services.fail_open import FailOpen
from kimi_proxy.services.originals import Keeper, PrunedLines, text_fingerprint
from kimi_proxy.services.pruner import PruneAnswer, Pruner

# What swe-pruner's clients ask of `POST /prune`, answered by our own engine.
#
# `threshold` is how relevant a line must be to stay. Our engine chooses the best lines within a limit instead, so
# the threshold sets the limit: at most `1.5 × threshold` of the lines may go, and never more than 95 %. With 0
# everything stays, with the usual 0.5 at most three quarters go.

TIMEOUT_MS = 10_000
GREED = 1.5
MAX_RATIO = 0.95

log = logging.getLogger(__name__)


class SwePrune(BaseModel):
    """Fields that we do not know are other clients' business; chunks are a matter of models that have them."""

    model_config = ConfigDict(extra="ignore", strict=True)

    code: str
    query: str
    threshold: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    always_keep_first_frags: bool = False
    chunk_overlap_tokens: int = 50


class SwePrunedBody(TypedDict):
    """swe-pruner's answer, with our id."""

    score: float
    pruned_code: str
    token_scores: list[tuple[str, float]]
    kept_frags: list[int]
    origin_token_cnt: int
    left_token_cnt: int
    model_input_token_cnt: int
    error_msg: str | None
    prune_id: str | None


async def prune(who: Caller, asked: SwePrune, pruner: Pruner) -> SwePrunedBody:
    ratio = min(GREED * asked.threshold, MAX_RATIO)
    options = Options(ratio, 0, TIMEOUT_MS, annotate_lines=False, include_markers=True)
    question = Question(asked.code, asked.query, source_type.guess("", asked.code), options)
    answer = await pruner.prune(who, question)
    scores = await pruner.line_scores(question)
    return await asyncio.to_thread(_to_swe_answer, asked, answer, scores)


def _to_swe_answer(asked: SwePrune, answer: PruneAnswer, scores: Sequence[float]) -> SwePrunedBody:
    pruned = answer.pruned
    lines = rows_of(asked.code, pruned.part_starts)
    cuts = _cuts(asked, answer)
    pruned_code = asked.code
    if cuts:
        pruned_code = pruned.text if pruned.part_starts else recovery.write(lines, cuts)
    gone = {number for cut in cuts for number in range(cut.start, cut.end + 1)}
    return {
        "score": max(scores, default=0.0),
        "pruned_code": pruned_code,
        "token_scores": list(zip(text_lines.split(asked.code), scores, strict=False)),
        "kept_frags": [number for number in range(1, len(lines) + 1) if number not in gone],
        "origin_token_cnt": pruned.tokens_before,
        "left_token_cnt": tokens.count(pruned_code) if cuts else pruned.tokens_before,
        "model_input_token_cnt": pruned.tokens_before + tokens.count(asked.query),
        "error_msg": ", ".join(pruned.warnings) if pruned.used_fallback else None,
        "prune_id": answer.prune_id,
    }


def _cuts(asked: SwePrune, answer: PruneAnswer) -> list[Cut]:
    cuts = [annotation.cut for annotation in answer.pruned.annotations]
    if asked.always_keep_first_frags and cuts and cuts[0].start == 1:
        first = cuts.pop(0)
        if first.end > 1:
            cuts.insert(0, Cut(2, first.end, first.reason))
    return cuts


MIN_KEEP_LINES = 30
LOCAL = "local"


@dataclass(frozen=True, slots=True)
class PrunedOutput:
    """An output after pruning. `exact` means that its lines are the original's own."""

    text: str
    original: str
    prune_id: str | None
    annotations: tuple[Annotation, ...]
    tokens_before: int
    tokens_after: int
    exact: bool = True
    part_starts: tuple[int, ...] = ()  # where parts are counted

    @property
    def is_applied(self) -> bool:
        return bool(self.annotations) or not self.exact

    @property
    def lines(self) -> int:
        return len(rows_of(self.original, self.part_starts))

    @property
    def hidden(self) -> int:
        return sum(annotation.cut.count for annotation in self.annotations)

    def number_lines(self, first: int) -> str:
        """Return the text with the numbers of its lines, which begin at `first`; markers have none."""
        if not self.exact or self.part_starts:
            return self.text
        lines = [text_lines.with_number(first + i, line) for i, line in enumerate(self.original.split("\n"))]
        return render(lines, self.annotations, _PLAIN)


Shorten = Callable[[Caller, str, str, Origin], Awaitable[PrunedOutput]]

_PLAIN = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)


@dataclass(frozen=True, slots=True)
class Pruning:
    """Whether, where and up to which size outputs are pruned."""

    shorten: Shorten
    enabled: bool
    endpoint: str  # for the log: a host, since an address may hold a secret
    max_input_bytes: int
    fail_open: FailOpen


class Endpoint(Protocol):
    async def prune(self, code: str, query: str, within_s: float) -> str: ...


def pruning(settings: ToolSettings, pruner: Pruner, keeper: Keeper, endpoint: Endpoint | None) -> Pruning:
    if endpoint is None:
        shorten = partial(_shorten_here, pruner, settings)
        where = LOCAL
    else:
        shorten = partial(_shorten_there, endpoint, keeper, settings, pruner.fail_open)
        where = settings.pruner_endpoint.host
    return Pruning(shorten, settings.enabled, where, settings.max_prune_input_bytes, pruner.fail_open)


ROOM_SHARE = 0.85  # of the room in a conversation: the least lines that must stay often take more


def _question(text: str, question: str, origin: Origin, settings: ToolSettings) -> Question:
    keep = min(MIN_KEEP_LINES, len(text_lines.split(text)))
    kind = type_of(origin, text)
    ratio = settings.max_log_prune_ratio if origin.command or kind == "logs" else settings.max_prune_ratio
    options = replace(_PLAIN, max_prune_ratio=ratio, min_keep_lines=keep, timeout_ms=settings.pruner_timeout_ms)
    return Question(text, question, kind, options, room=int(ROOM_SHARE * room_for(tokens.count(text))))


async def _shorten_here(
    pruner: Pruner, settings: ToolSettings, who: Caller, text: str, question: str, origin: Origin
) -> PrunedOutput:
    asked = await asyncio.to_thread(_question, text, question, origin, settings)
    answer = await pruner.prune(who, asked)
    pruned = answer.pruned
    if pruned.used_fallback and not pruned.annotations:
        reason = "timeout" if "timeout" in pruned.warnings else pruned.warnings[0]
        raise PruneFailed(reason, f"the pruner returned the text uncut: {reason}")
    return PrunedOutput(
        pruned.text,
        text,
        answer.prune_id,
        pruned.annotations,
        pruned.tokens_before,
        pruned.tokens_after,
        part_starts=pruned.part_starts,
    )


async def _shorten_there(
    endpoint: Endpoint,
    keeper: Keeper,
    settings: ToolSettings,
    fail_open: FailOpen,
    who: Caller,
    text: str,
    question: str,
    origin: Origin,
) -> PrunedOutput:
    kept = await endpoint.prune(text, question, settings.pruner_timeout_ms / 1000)
    asked = await asyncio.to_thread(_question, text, question, origin, settings)
    work = _mark_and_keep(who, keeper, asked, kept, settings.pruner_endpoint)
    found: PrunedOutput | WarningCode = await fail_open.run("keep", work, lambda code: code)
    if isinstance(found, PrunedOutput):
        return found
    raise PruneFailed(found, "the answer of the pruner could not be used")


async def _mark_and_keep(who: Caller, keeper: Keeper, asked: Question, kept: str, endpoint: Address) -> PrunedOutput:
    """Return what a pruner left of a text, with markers; its original is on disk by then."""
    raw = encode_text(asked.text)
    key = text_fingerprint(b"swe-pruner", endpoint.get_secret_value().encode(), encode_text(asked.goal), raw)
    prune_id = await keeper.id_for(who, key)
    found = await asyncio.to_thread(_with_markers, asked.text, kept, prune_id)
    if not found.is_applied:
        return found
    pruned = Pruned(found.text, found.annotations, found.lines, found.tokens_before, found.tokens_after)
    # No text is replaced by a marker before its original is on disk.
    await keeper.keep(who, prune_id, key, raw, PrunedLines.of(asked, pruned, "swe-pruner"))
    return found


def _with_markers(text: str, kept: str, prune_id: str) -> PrunedOutput:
    """Return the server's text with our markers in its gaps, or unchanged if its lines differ from the original's."""
    lines = text_lines.split(text)
    sent = text.encode("utf-8", "replace").decode()  # lone surrogates left as question marks
    cuts = recovery.read(text_lines.split(sent), kept)
    annotations = annotate(cuts or [], prune_id)
    shown = kept if cuts is None else render(lines, annotations, _PLAIN)
    before = tokens.count(text)
    after = tokens.count(shown)
    if after >= before:
        return PrunedOutput(text, text, None, (), before, before)
    return PrunedOutput(shown, text, prune_id, annotations, before, after, exact=cuts is not None)
