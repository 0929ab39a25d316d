"""What was decided is not looked up with every request, and never told wrong for that."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fakes import Clock
from tests.services.store.making import opened

from kimi_proxy.features.sanitizer.plan import LongOutput, Origin
from kimi_proxy.features.sanitizer.shorten import Hidden, ShortenedText
from kimi_proxy.services.chat.decisions import ChatDecisions, ShortenedOutput
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

    async def get(self, scope: str, keys: Sequence[bytes]) -> Mapping[bytes, DecisionRecord]:
        self.reads += 1
        return await self._stored_decisions.get(scope, keys)

    async def add(
        self, scope: str, new: Sequence[DecisionRecord], forget: Sequence[bytes] = ()
    ) -> Mapping[bytes, DecisionRecord]:
        return await self._stored_decisions.add(scope, new, forget)


async def test_a_decision_is_looked_up_once_in_a_while(tmp_path: Path):
    clock = Clock(0.0)
    async with opened(tmp_path) as store:
        stored_decisions = CountedDecisions(store)
        decisions = ChatDecisions(store.originals, stored_decisions, 60, clock)
        await decisions.commit([CUT], "ses_1")
        told = [await decisions.known([OUTPUT]) for _ in range(3)]
        before = stored_decisions.reads
        clock.advance(61)
        told.append(await decisions.known([OUTPUT]))

    assert [decision[OUTPUT.key].shown for decision in told] == ["te…"] * 4
    assert (before, stored_decisions.reads) == (0, 1)


async def test_what_went_whole_since_counts_for_more_than_what_is_remembered(tmp_path: Path):
    async with opened(tmp_path) as store:
        decisions = ChatDecisions(store.originals, store.decisions, 60, Clock(0.0))
        await decisions.commit([CUT], "ses_1")
        await decisions.known([OUTPUT])
        decisions.went_whole([OUTPUT], "store_unavailable")
        told = await decisions.known([OUTPUT])

    assert told[OUTPUT.key].shown is None


async def test_what_is_owed_to_a_call_whose_id_was_used_before_is_told(tmp_path: Path):
    async with opened(tmp_path) as store:
        stored_decisions = CountedDecisions(store)
        decisions = ChatDecisions(store.originals, stored_decisions, 60, Clock(0.0))
        nothing = [await decisions.pending_results("ses_1", ["call_1"]) for _ in range(2)]
        before = stored_decisions.reads
        await decisions.save_pending_result("ses_1", "call_1", "recovered lines")
        owed = [await decisions.pending_results("ses_1", ["call_1"]) for _ in range(2)]

    assert nothing == [{}, {}]
    assert owed == [{"call_1": "recovered lines"}] * 2
    assert (before, stored_decisions.reads) == (1, 2)
