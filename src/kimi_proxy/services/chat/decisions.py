"""What was decided about outputs of tools: on disk before anything is cut, and repeated from then on."""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from kimi_proxy.core import json
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.errors import OtherReason, Reason, StoreUnavailable
from kimi_proxy.core.prune import Annotation, Options, Pruned, Question
from kimi_proxy.features.sanitizer.plan import Output
from kimi_proxy.features.sanitizer.shorten import Hidden, Shortened
from kimi_proxy.features.sanitizer.stage import Decision
from kimi_proxy.services import originals
from kimi_proxy.services.originals import decoded, encoded
from kimi_proxy.services.store import (
    NEWEST,
    DecisionRecord,
    Decisions,
    DecisionTotals,
    ListedOriginal,
    Original,
    Originals,
)

SCOPE = "local"
PREVIEW_CHARS = 200
UNWRITTEN_MAX = 10_000
REMEMBER_MAX, REMEMBER_BYTES = 20_000, 64 * 1024**2

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShortenedOutput:
    """What becomes of an output that was not sent before."""

    output: Output
    goal: str
    shortened: Shortened


class ChatDecisions:
    def __init__(
        self,
        originals: Originals,
        stored_decisions: Decisions,
        remember_s: float = 0,  # what was read so lately is not read again
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._originals = originals
        self._stored_decisions = stored_decisions
        self._recent: LruCache[bytes, Decision] = LruCache(
            ttl_s=remember_s, max_entries=REMEMBER_MAX, max_bytes=REMEMBER_BYTES, now=now
        )
        # Empty where nothing is owed: a call comes back with its result when the answer that made it is over.
        self._recent_owed: LruCache[bytes, str] = LruCache(
            ttl_s=remember_s, max_entries=REMEMBER_MAX, max_bytes=REMEMBER_BYTES, now=now
        )
        # Outputs that went out whole, which is not on disk yet; it counts for more than what is.
        self._unwritten: dict[bytes, DecisionRecord] = {}

    async def known(self, outputs: Sequence[Output]) -> dict[bytes, Decision]:
        """How these outputs were sent before, as far as they were; StoreUnavailable if nobody can tell."""
        lately = {output.key: self._recent.get(output.key) for output in outputs}
        found = {key: decision for key, decision in lately.items() if decision is not None}
        unread = [output for output in outputs if output.key not in found]
        found |= await self._looked_up(unread) if unread else {}
        return found | {key: _decision(pin) for key, pin in self._unwritten_of(outputs).items()}

    async def _looked_up(self, outputs: Sequence[Output]) -> dict[bytes, Decision]:
        pins = dict(await self._stored_decisions.get(SCOPE, [output.key for output in outputs]))
        lost = await self._lost(pins.values())
        for output in outputs:
            if output.key in lost and not await self._kept_again(output, pins[output.key]):
                pins[output.key] = self._went_whole(output, "expired")
        for key, pin in pins.items():
            self._recent.put(key, _decision(pin), len(pin.shown or b""))
        return {key: _decision(pin) for key, pin in pins.items()}

    async def settle(self, made: Sequence[ShortenedOutput], session: str) -> dict[bytes, Decision]:
        """Put on disk what was made, and say what stands; StoreUnavailable if nothing of it could be kept."""
        kept = await asyncio.gather(*(self._kept(one) for one in made))
        pins = [_pin(one, is_kept, session) for one, is_kept in zip(made, kept, strict=True)]
        late = tuple(self._unwritten.values())
        standing = await self._stored_decisions.add(SCOPE, [*late, *pins], forget=[pin.key for pin in late])
        for pin in late:
            self._unwritten.pop(pin.key, None)
        own = {pin.key for pin in pins}
        return {key: replace(_decision(pin), is_new=True) for key, pin in standing.items() if key in own}

    async def owe(self, session: str, call: str, text: str) -> None:
        """Remember what the model is told beside the result of this call, from the next request on."""
        pin = DecisionRecord(_owed(session, call), "owed", encoded(text), session=session)
        self._recent_owed.forget(pin.key)
        await self._stored_decisions.add(SCOPE, [pin])

    async def owed(self, session: str, calls: Iterable[str]) -> dict[str, str]:
        """What the model is told beside the results of these calls."""
        places = {_owed(session, call): call for call in calls}
        known = {place: self._recent_owed.get(place) for place in places}
        unread = [place for place, text in known.items() if text is None]
        pins = await self._stored_decisions.get(SCOPE, unread) if unread else {}
        for place in unread:
            known[place] = text = decoded(pins[place].shown or b"") if place in pins else ""
            self._recent_owed.put(place, text, len(text))
        return {places[place]: text for place, text in known.items() if text}

    async def rename(self, shown: str, real: str) -> None:
        """Remember which answer is meant by an id that the client knows."""
        await self._stored_decisions.add(SCOPE, [DecisionRecord(_renamed(shown), "renamed", encoded(real))])

    async def real_name(self, shown: str) -> str | None:
        pin = (await self._stored_decisions.get(SCOPE, [_renamed(shown)])).get(_renamed(shown))
        return None if pin is None or pin.shown is None else decoded(pin.shown)

    async def leave_open(self, answer: str, results: Mapping[str, str]) -> None:
        """Remember the results of calls of ours in an answer that the provider keeps, by the ids of the calls."""
        await self._stored_decisions.add(
            SCOPE, [DecisionRecord(_open(answer), "open", encoded(json.encode(results).decode()))]
        )

    async def left_open(self, answer: str) -> Mapping[str, str]:
        """What has to be told with the first request that goes on from an answer."""
        pin = (await self._stored_decisions.get(SCOPE, [_open(answer)])).get(_open(answer))
        results = None if pin is None or pin.shown is None else json.decode(pin.shown)
        return {id: str(text) for id, text in results.items()} if isinstance(results, Mapping) else {}

    async def totals(self) -> DecisionTotals:
        return await self._stored_decisions.totals(SCOPE)

    async def newest(self, limit: int) -> Sequence[ListedOriginal]:
        """What was cut last, by whichever door."""
        return await self._originals.page(SCOPE, NEWEST, limit)

    def went_whole(self, outputs: Iterable[Output], why: Reason) -> dict[bytes, Decision]:
        """Remember that these went out whole, and must again."""
        return {output.key: _decision(self._went_whole(output, why)) for output in outputs}

    def _went_whole(self, output: Output, why: Reason) -> DecisionRecord:
        if len(self._unwritten) >= UNWRITTEN_MAX:
            self._unwritten.pop(next(iter(self._unwritten)))
        return self._unwritten.setdefault(output.key, DecisionRecord(output.key, why))

    def _unwritten_of(self, outputs: Sequence[Output]) -> dict[bytes, DecisionRecord]:
        return {output.key: self._unwritten[output.key] for output in outputs if output.key in self._unwritten}

    async def _lost(self, pins: Collection[DecisionRecord]) -> Mapping[bytes, Collection[str]]:
        """The places whose originals are gone, and which."""
        ids = [id for pin in pins for id in pin.original_ids]
        live = await self._originals.live(SCOPE, ids) if ids else frozenset[str]()
        gone = {pin.key: frozenset(pin.original_ids) - live for pin in pins}
        return {place: missing for place, missing in gone.items() if missing}

    async def _kept_again(self, output: Output, pin: DecisionRecord) -> bool:
        """An original that is gone comes with every request: it can be kept again under its id."""
        if len(pin.original_ids) > 1:
            return False
        try:
            await self._originals.keep(_original(Hidden(pin.original_ids[0], output.text), output, ""))
        except StoreUnavailable:
            return False
        return True

    async def _kept(self, made: ShortenedOutput) -> bool:
        """Whether all that would be hidden is on disk."""
        try:
            for hidden in made.shortened.hidden:
                await self._originals.keep(await asyncio.to_thread(_original, hidden, made.output, made.goal))
        except StoreUnavailable as e:
            log.warning("cutting needs the store", extra={"what": str(e)[:300]})
            return False
        return True


def _owed(session: str, call: str) -> bytes:
    return sha256(b"owed\0" + encoded(session) + b"\0" + encoded(call)).digest()


def _open(answer: str) -> bytes:
    return sha256(b"open\0" + encoded(answer)).digest()


def _renamed(shown: str) -> bytes:
    return sha256(b"renamed\0" + encoded(shown)).digest()


def _original(hidden: Hidden, output: Output, goal: str) -> Original:
    raw = encoded(hidden.text)
    return Original(hidden.id, SCOPE, sha256(b"output\0" + output.key + raw).digest(), raw, _note(hidden, goal))


def _note(hidden: Hidden, goal: str) -> bytes:
    """Where lines were cut, a note by which the cut can be explained."""
    if hidden.source_type is None:
        return json.encode({"what": "output"})
    options = Options(hidden.max_prune_ratio, 0, 0, annotate_lines=False, include_markers=True)
    annotations = tuple(Annotation(cut, "") for cut in hidden.cuts)
    pruned = Pruned("", annotations, hidden.text.count("\n") + 1, 0, 0)
    return originals.encode(Question("", goal, hidden.source_type, options), pruned, "heuristic")


def _pin(made: ShortenedOutput, is_kept: bool, session: str) -> DecisionRecord:
    done = made.shortened
    if not is_kept:
        return DecisionRecord(made.output.key, "store_unavailable", session=session)
    is_cut = bool(done.hidden)
    return DecisionRecord(
        key=made.output.key,
        why=done.why,
        shown=encoded(done.shown) if is_cut else None,
        original_ids=tuple(hidden.id for hidden in done.hidden),
        preview=made.output.text[:PREVIEW_CHARS] if is_cut else "",
        session=session,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
    )


def _decision(pin: DecisionRecord) -> Decision:
    shown = None if pin.shown is None else decoded(pin.shown)
    return Decision(OtherReason(pin.why), shown, pin.tokens_before, pin.tokens_after)
