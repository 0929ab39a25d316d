"""What was decided is not looked up with every request, and never told wrong for that."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fakes import Clock
from tests.services.store.making import opened

from kimi_proxy.features.sanitizer.plan import Origin, Output
from kimi_proxy.features.sanitizer.shorten import Hidden, Shortened
from kimi_proxy.services.chat.decisions import Decisions, ShortenedOutput
from kimi_proxy.services.store import Pin
from kimi_proxy.services.store.sqlite.store import SqliteStore

OUTPUT = Output((0, 0), 0, 4, "text", Origin(), b"a place", is_unread=True)
CUT = ShortenedOutput(OUTPUT, "a goal", Shortened("te…", "preview", (Hidden("msk_0123456789abcdef", "text"),), 9, 3))


class CountedPinboard:
    """The real one, and how often it was asked."""

    def __init__(self, store: SqliteStore) -> None:
        self._pinboard = store.pinboard
        self.reads = 0

    async def pinned(self, scope: str, places: Sequence[bytes]) -> Mapping[bytes, Pin]:
        self.reads += 1
        return await self._pinboard.pinned(scope, places)

    async def pin(self, scope: str, new: Sequence[Pin], gone: Sequence[bytes] = ()) -> Mapping[bytes, Pin]:
        return await self._pinboard.pin(scope, new, gone)


async def test_a_decision_is_looked_up_once_in_a_while(tmp_path: Path):
    clock = Clock(0.0)
    async with opened(tmp_path) as store:
        pinboard = CountedPinboard(store)
        decisions = Decisions(store, pinboard, 60, clock)
        await decisions.settle([CUT], "ses_1")
        told = [await decisions.known([OUTPUT]) for _ in range(3)]
        before = pinboard.reads
        clock.advance(61)
        told.append(await decisions.known([OUTPUT]))

    assert [decision[OUTPUT.key].shown for decision in told] == ["te…"] * 4
    assert (before, pinboard.reads) == (1, 2)


async def test_what_went_whole_since_counts_for_more_than_what_is_remembered(tmp_path: Path):
    async with opened(tmp_path) as store:
        decisions = Decisions(store, store.pinboard, 60, Clock(0.0))
        await decisions.settle([CUT], "ses_1")
        await decisions.known([OUTPUT])
        decisions.went_whole([OUTPUT], "store_unavailable")
        told = await decisions.known([OUTPUT])

    assert told[OUTPUT.key].shown is None


async def test_what_is_owed_to_a_call_whose_id_was_used_before_is_told(tmp_path: Path):
    async with opened(tmp_path) as store:
        pinboard = CountedPinboard(store)
        decisions = Decisions(store, pinboard, 60, Clock(0.0))
        nothing = [await decisions.owed("ses_1", ["call_1"]) for _ in range(2)]
        before = pinboard.reads
        await decisions.owe("ses_1", "call_1", "recovered lines")
        owed = [await decisions.owed("ses_1", ["call_1"]) for _ in range(2)]

    assert nothing == [{}, {}]
    assert owed == [{"call_1": "recovered lines"}] * 2
    assert (before, pinboard.reads) == (1, 2)
