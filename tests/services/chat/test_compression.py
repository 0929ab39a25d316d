"""A compression whose disk or client leaves in the middle of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.conversations import Assistant, Item, User, request
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.compression import Preset
from kimi_proxy.features.chat.pipeline import Draft, run_stages
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.services.chat.compression import MAX_LAST_BYTES, Compressor
from kimi_proxy.services.chat.context import TokenCounter
from kimi_proxy.services.chat.providers import RateLimiter
from kimi_proxy.services.chat.summaries import Summaries, Summary, SummaryTask
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.protocols import CompressionRecord
from kimi_proxy.services.store.sqlite.tables import SqliteDecisions

PRESET = Preset("compression", 85, 1, 400, asks_provider=True)
SESSION = Session("ses_1")


class Paid(Summaries):
    async def from_provider(self, draft: Draft, task: SummaryTask) -> Summary:
        return Summary("Notes.", "provider", Usage(900, 40))


class Late(SqliteDecisions):
    """Its disk does what it is told, and then nobody hears of it: it fails, or waits for ever."""

    def __init__(self, decisions: SqliteDecisions) -> None:
        super().__init__(decisions.database, ttl_s=3600)
        self.is_written = asyncio.Event()
        self.hangs = False

    async def add_compression(self, who: Caller, made: CompressionRecord, after: str | None = None) -> bool:
        await super().add_compression(who, made, after)
        await self._then()
        return True

    async def undo_compression(self, who: Caller, id: str, at: float) -> None:
        await super().undo_compression(who, id, at)
        await self._then()

    async def _then(self) -> None:
        self.is_written.set()
        if self.hangs:
            await asyncio.Event().wait()
        raise StoreUnavailable("the disk has not answered within 2 s")


def talk() -> Draft:
    said: list[Item] = []
    for n in range(12):
        said += [User(f"question {n}: {'tell me more about it ' * 60}"), Assistant(f"answer {n}: {'so it is ' * 60}")]
    whole = request(Wire.CHAT, [*said, User("and?")])
    return Draft(whole, Target("p", "m"), SESSION, LOCAL, whole)


@asynccontextmanager
async def world(home: Path) -> AsyncIterator[tuple[Compressor, Late]]:
    counting = TokenCounter()
    async with opened(home) as store:
        log = Late(store.decisions)
        summaries = Paid(None, RateLimiter({}), Metrics(), 1.0)
        yield Compressor(Models({}, {}), counting, store.originals, log, summaries, offers_tool=False), log
    counting.close()


async def sent(compressor: Compressor) -> Draft:
    return await run_stages(talk(), (compressor.change,), lambda step, error: None)


async def test_what_the_disk_did_after_nobody_waited_any_more_is_what_stands(tmp_path: Path):
    async with world(tmp_path) as (compressor, _):
        before = await sent(compressor)
        with pytest.raises(StoreUnavailable):
            await compressor.compress(talk(), PRESET)
        after = await sent(compressor)
        with pytest.raises(StoreUnavailable):
            await compressor.undo(LOCAL, SESSION.id)
        undone = await sent(compressor)

    assert [draft.compression is None for draft in (before, after, undone)] == [True, False, True]


async def test_a_summary_is_paid_for_even_if_the_client_hangs_up_before_it_is_kept(tmp_path: Path):
    async with world(tmp_path) as (compressor, log):
        log.hangs = True
        await sent(compressor)
        compressing = asyncio.create_task(compressor.compress(talk(), PRESET, is_automatic=True))
        await log.is_written.wait()
        compressing.cancel()
        with suppress(asyncio.CancelledError):
            await compressing
        after = await sent(compressor)

    assert [(note.event, note.fields["summary_input_tokens"]) for note in after.notes] == [("compression_paid", 900)]
    assert after.compression is not None


async def test_a_last_request_counts_with_what_was_cut_from_it(tmp_path: Path):
    came = Request(Wire.CHAT, b" " * (MAX_LAST_BYTES // 4))
    small = talk().request
    async with world(tmp_path) as (compressor, _):
        for name in ("ses_1", "ses_2", "ses_3", "ses_4"):
            await compressor.change(Draft(small, Target("p", "m"), Session(name), LOCAL, came))
        seen = [compressor.has_seen(LOCAL, name) for name in ("ses_1", "ses_2", "ses_3", "ses_4")]

    assert seen == [False, True, True, True]
