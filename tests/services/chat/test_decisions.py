"""What was decided is not looked up with every request, and never told wrong for that."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fakes import Clock
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.sanitizer.decide import ShortenedOutput
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.shorten import Hidden, ShortenedText
from kimi_proxy.services.chat.decisions import REMEMBER_BYTES, ChatDecisions
from kimi_proxy.services.store.protocols import DecisionRecord
from kimi_proxy.services.store.sqlite.store import SqliteStore

OUTPUT = LongOutput((0, 0), 0, 4, "text", Origin(), "", is_unread=True, key=b"a place")
CUT = ShortenedOutput(
    OUTPUT, "a goal", ShortenedText("te…", "preview", (Hidden("msk_0123456789abcdef", "text"),), 9, 3)
)


class CountedDecisions:
    """The real one, and how often it was asked."""

    def __init__(self, store: SqliteStore) -> None:
        self._stored_decisions = store.decisions
        self.reads = 0

    async def get(self, who: Caller, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        self.reads += 1
        return await self._stored_decisions.get(who, keys)

    async def add(
        self, who: Caller, new: Sequence[DecisionRecord], forget: Sequence[bytes] = ()
    ) -> Mapping[bytes, DecisionRecord]:
        return await self._stored_decisions.add(who, new, forget)


class LateDecisions(CountedDecisions):
    """A disk that writes, but says so only after its caller has given up."""

    is_late = False

    async def add(
        self, who: Caller, new: Sequence[DecisionRecord], forget: Sequence[bytes] = ()
    ) -> Mapping[bytes, DecisionRecord]:
        written = await super().add(who, new, forget)
        if self.is_late:
            self.is_late = False
            raise StoreUnavailable("the disk has not answered")
        return written


async def test_a_decision_is_looked_up_once_in_a_while(tmp_path: Path):
    clock = Clock(0.0)
    async with opened(tmp_path) as store:
        stored_decisions = CountedDecisions(store)
        decisions = ChatDecisions(store.originals, stored_decisions, 60, clock)
        await decisions.commit(LOCAL, [CUT], "ses_1")
        told = [await decisions.read_known(LOCAL, [OUTPUT]) for _ in range(3)]
        before = stored_decisions.reads
        clock.advance(61)
        told.append(await decisions.read_known(LOCAL, [OUTPUT]))

    assert [decision[OUTPUT.key].shown for decision in told] == ["te…"] * 4
    assert (before, stored_decisions.reads) == (0, 1)


async def test_what_went_whole_since_counts_for_more_than_what_is_remembered(tmp_path: Path):
    async with opened(tmp_path) as store:
        decisions = ChatDecisions(store.originals, store.decisions, 60, Clock(0.0))
        await decisions.commit(LOCAL, [CUT], "ses_1")
        await decisions.read_known(LOCAL, [OUTPUT])
        decisions.mark_uncut(LOCAL, [OUTPUT], "store_unavailable")
        told = await decisions.read_known(LOCAL, [OUTPUT])

    assert told[OUTPUT.key].shown is None


async def test_a_cut_that_was_written_too_late_is_taken_back_on_disk_before_a_restart(tmp_path: Path):
    async with opened(tmp_path) as store:
        late = LateDecisions(store)
        decisions = ChatDecisions(store.originals, late)
        late.is_late = True
        with pytest.raises(StoreUnavailable):
            await decisions.commit(LOCAL, [CUT], "ses_1")
        sent = await decisions.read_known(LOCAL, [OUTPUT])
        await decisions.close()
        after_restart = await ChatDecisions(store.originals, store.decisions).read_known(LOCAL, [OUTPUT])

    assert sent[OUTPUT.key].shown is None
    assert after_restart[OUTPUT.key].shown is None


async def test_what_was_sent_stays_when_its_replacement_is_written_too_late(tmp_path: Path):
    shorter = replace(CUT, shortened=ShortenedText("…", "aged", CUT.shortened.hidden, 9, 1), replaces=True)
    async with opened(tmp_path) as store:
        late = LateDecisions(store)
        decisions = ChatDecisions(store.originals, late, 60, Clock(0.0))
        await decisions.commit(LOCAL, [CUT], "ses_1")
        late.is_late = True
        with pytest.raises(StoreUnavailable):
            await decisions.commit(LOCAL, [shorter], "ses_1")
        sent = await decisions.read_known(LOCAL, [OUTPUT])
        await decisions.close()
        after_restart = await ChatDecisions(store.originals, store.decisions).read_known(LOCAL, [OUTPUT])
        again = await decisions.commit(LOCAL, [shorter], "ses_1")

    assert [told[OUTPUT.key].shown for told in (sent, after_restart, again)] == ["te…", "te…", "…"]


async def test_memory_holds_decisions_by_the_room_that_their_text_takes(tmp_path: Path):
    shown = "é" * (REMEMBER_BYTES // 8) + "⟦"  # characters of two bytes
    outputs = [replace(OUTPUT, key=b"place %d" % n) for n in range(4)]
    cut = [
        ShortenedOutput(output, "a goal", replace(CUT.shortened, shown=shown, hidden=(Hidden(f"msk_{n:016}", "text"),)))
        for n, output in enumerate(outputs)
    ]
    async with opened(tmp_path) as store:
        decisions = ChatDecisions(store.originals, store.decisions, 60)
        await decisions.commit(LOCAL, cut, "ses_1")
        in_memory = decisions.from_memory(LOCAL, outputs)
        known = await decisions.read_known(LOCAL, outputs)

    assert list(in_memory) == [output.key for output in outputs[1:]]
    assert {key: decision.shown for key, decision in known.items()} == {output.key: shown for output in outputs}
