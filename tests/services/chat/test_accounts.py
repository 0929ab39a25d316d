"""Accounts of real traffic, held against what doing nothing would have cost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.recordings.agent import Model as Counting
from tests.support import outputs
from tests.support.conversations import Assistant, Item, Result, User, body
from tests.support.conversations import Call as Asked
from tests.support.deep import too
from tests.support.evil import Evil, Heard, Line, Script, evil, http
from tests.support.model import Call, Says, events
from tests.support.model import body as answer_body

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.accounting import Account, prices_of
from kimi_proxy.features.chat.context import HEADING
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.recording import Recording, read
from kimi_proxy.services.chat.requests import ChatRequest

RECORDINGS = Path(__file__).parents[2] / "recordings"
PRICES = """
input_usd_per_million = 3.0
cached_usd_per_million = 0.3
cache_write_usd_per_million = 3.75
output_usd_per_million = 15.0
"""


def recording(name: str) -> Recording:
    with (RECORDINGS / f"{name}.jsonl").open("rb") as lines:
        return read(lines)


def toml(provider: Evil, wire: Wire, model: str, more: str = "") -> str:
    kind = wire.format.provider_types[0]
    named = f'[models."{model}"]\nprovider = "{kind}-evil"\nmax_context_size = 1_000_000\n{PRICES}'
    return f"{provider.toml(kind)}{named}[sanitizer]\nbudget_ms = 60_000\n{more}"


async def ask(runtime: Runtime, wire: Wire, raw: bytes) -> None:
    async with runtime.chat.answer(ChatRequest(LOCAL, wire, raw)) as answer:
        _ = [piece async for piece in answer.rest] if answer.rest else []


async def noted(runtime: Runtime) -> list[Metric]:
    return [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]


@pytest.mark.parametrize("name", ["debugging", too("refactoring"), too("log-hunt")])
async def test_what_doing_nothing_would_have_cost_is_what_it_did_cost_when_nothing_was_done(name: str, tmp_path: Path):
    recorded = recording(name)
    wire = recorded.requests[0].wire
    provider = Counting(wire)
    async with (
        evil(provider.answer) as upstream,
        running(parse(toml(upstream, wire, recorded.head.model), {}, tmp_path), thread_max_chars=10**9) as runtime,
    ):
        for taken in recorded.requests:
            assert taken.usage is not None
            provider.at, provider.output_tokens = taken.at, taken.usage.output_tokens
            await ask(runtime, wire, taken.body.encode())
        metrics = await noted(runtime)
        prices = runtime.config.models[recorded.head.model]

    table = prices_of(prices)
    assert table is not None
    off = sum(table.cost_usd(taken.usage) for taken in recorded.requests if taken.usage)
    accounts = [metric.account for metric in metrics if metric.account]
    before = sum(one.cost_before_usd or 0 for one in accounts)
    net = sum(one.net_saved_usd or 0 for one in accounts)
    assert len(accounts) == len(recorded.requests)
    assert before == pytest.approx(off, rel=0.01)
    assert net == pytest.approx(off - sum(metric.cost_usd or 0 for metric in metrics), abs=0.01 * off)


LOG = outputs.pytest_log(300)
ITEMS: list[Item] = [User(LOG.goal), Assistant("", (Asked("call_a1"),)), Result("call_a1", LOG.text)]


async def test_instructions_are_repeated_for_the_window_of_the_model_that_was_routed_to(tmp_path: Path):
    bodies: list[bytes] = []

    async def answer(heard: Heard, line: Line) -> None:
        bodies.append(heard.body)
        await line.send(http(answer_body(Wire.CHAT, Says("So."))))

    items: list[Item] = [User("word " * 700), Assistant("Yes."), User("word " * 700)]
    async with evil(answer) as upstream:
        sizes = {"kimi-small": 1000, "kimi-large": 100_000}
        models = "".join(
            f'[models."{name}"]\nprovider = "openai-evil"\nmax_context_size = {size}\n' for name, size in sizes.items()
        )
        more = "[reinjection]\nenabled = true\n[sanitizer.routing]\nheavy_duty_fallback = true\n"
        async with running(parse(f"{upstream.toml('openai')}{models}{more}", {}, tmp_path)) as runtime:
            await ask(runtime, Wire.CHAT, body(Wire.CHAT, items, model="kimi-small"))

    (sent,) = bodies
    assert b'"kimi-large"' in sent
    assert HEADING.encode() not in sent


@pytest.mark.parametrize("wire", list(Wire))
async def test_turns_in_which_the_model_read_back_are_on_the_account(wire: Wire, tmp_path: Path):
    says = [
        Says("Hm.", (Call("own_1", "recover_text", {"id": "prn_none"}),), tokens=(100, 5)),
        Says("So.", tokens=(120, 7)),
    ]
    asked = 0

    async def answer(heard: Heard, line: Line) -> None:
        nonlocal asked
        await line.send(http(answer_body(wire, says[min(asked, 1)])))
        asked += 1

    async with (
        evil(answer) as upstream,
        running(parse(toml(upstream, wire, "kimi-k2"), {}, tmp_path), thread_max_chars=10**9) as runtime,
    ):
        await ask(runtime, wire, body(wire, ITEMS))
        (metric,) = await noted(runtime)

    told = metric.account
    assert told is not None
    # There is no such id: the turn is paid for, and nothing was read back.
    assert (told.recoveries, told.extra_turns, told.recovery_tokens) == (0, 1, 125)
    assert (metric.input_tokens, told.tokens_after) == (220, 100)
    assert told.net_saved_tokens == told.tokens_before - 100 - 125 - told.cache_lost_tokens


async def test_an_answer_that_nobody_pays_for_has_no_account(tmp_path: Path):
    async def refuse(heard: Heard, line: Line) -> None:
        await line.send(http(b'{"error": {"message": "slow down"}}', "429 Too Many Requests"))

    async with (
        evil(refuse) as upstream,
        running(parse(toml(upstream, Wire.CHAT, "kimi-k2"), {}, tmp_path), thread_max_chars=10**9) as runtime,
    ):
        await ask(runtime, Wire.CHAT, body(Wire.CHAT, ITEMS))
        (metric,) = await noted(runtime)

    assert (metric.status, metric.account) == (429, None)


@pytest.mark.parametrize("wire", [Wire.CHAT, Wire.RESPONSES])
async def test_an_answer_that_the_client_broke_off_is_charged_by_estimate(tmp_path: Path, wire: Wire):
    """The provider counts at the end of a stream, and charges for what it has said by then."""

    async def answer(heard: Heard, line: Line) -> None:
        await line.stream(*events(wire, Says("A long answer. " * 50))[:20], ends=False)
        await line.until_left()

    async with (
        evil(answer) as upstream,
        running(parse(toml(upstream, wire, "kimi-k2"), {}, tmp_path)) as runtime,
    ):
        raw = body(wire, [User("tell me " * 1000)], tools=(), stream=True)
        async with runtime.chat.answer(ChatRequest(LOCAL, wire, raw)) as given:
            assert given.rest is not None
            await anext(given.rest)
        (metric,) = await noted(runtime)

    assert (metric.outcome, metric.counted_by) == ("client_gone", "estimate")
    assert metric.cost_usd is not None
    read, written = metric.tokens_estimated * 3 / 1e6, 20 * 15 / 1e6
    assert read < metric.cost_usd <= read + written


async def test_a_request_that_nobody_changed_has_an_account_of_nothing_saved(tmp_path: Path):
    async def answer(heard: Heard, line: Line) -> None:
        await line.send(http(answer_body(Wire.CHAT, Says("So.", tokens=(100, 7)))))

    async with (
        evil(answer) as upstream,
        running(parse(toml(upstream, Wire.CHAT, "kimi-k2"), {}, tmp_path), thread_max_chars=10**9) as runtime,
    ):
        await ask(runtime, Wire.CHAT, body(Wire.CHAT, [User("hello")], tools=()))
        (metric,) = await noted(runtime)
        session = await runtime.sessions.session(LOCAL, metric.session)

    nothing = {"net_saved_usd": 0.0, "cache_lost_usd": 0.0, "overhead_usd": 0.0}
    assert metric.account == Account(100, 100, cost_before_usd=metric.cost_usd, **nothing)
    assert (session.net_saved_tokens, session.net_saved_usd, session.cost_before_usd) == (0, 0.0, metric.cost_usd)


def a_long_talk() -> list[Item]:
    said: list[Item] = []
    for n in range(12):
        said += [User(f"question {n}: {'tell me more about it ' * 60}"), Assistant(f"answer {n}: {'so it is ' * 60}")]
    return said


async def talks_and_summarises(heard: Heard, line: Line) -> None:
    is_summary = b"You summarise the earlier part" in heard.body
    says = Says("Notes.", tokens=(900, 40)) if is_summary else Says("So.", tokens=(len(heard.body) // 5, 7))
    await line.send(http(answer_body(Wire.CHAT, says)))


@asynccontextmanager
async def talked(script: Script, said: list[Item], tmp_path: Path) -> AsyncIterator[tuple[Runtime, Metric]]:
    """A proxy before this provider, and its first request: what was said, and a question."""
    async with (
        evil(script) as upstream,
        running(parse(toml(upstream, Wire.CHAT, "kimi-k2"), {}, tmp_path), thread_max_chars=10**9) as runtime,
    ):
        await ask(runtime, Wire.CHAT, body(Wire.CHAT, [*said, User("and?")]))
        (first,) = await noted(runtime)
        yield runtime, first


async def test_a_compression_by_hand_is_on_the_account_of_the_first_request_that_carries_it(tmp_path: Path):
    said = a_long_talk()
    async with talked(talks_and_summarises, said, tmp_path) as (runtime, first):
        await runtime.compressions.compress(LOCAL, first.session, runtime.compressions.usual)
        for more in ("again?", "and again?"):
            await ask(runtime, Wire.CHAT, body(Wire.CHAT, [*said, User("and?"), Assistant("So."), User(more)]))
        accounts = [metric.account for metric in await noted(runtime)]

    plain, paying, later = accounts
    assert plain is not None
    assert paying is not None
    assert later is not None
    assert (plain.summaries, paying.summaries, later.summaries) == (0, 1, 0)
    assert (paying.summary_tokens, later.summary_tokens) == (940, 0)
    assert paying.cache_lost_tokens > 0
    assert (plain.cache_lost_tokens, later.cache_lost_tokens) == (0, 0)
    assert paying.net_saved_tokens < later.net_saved_tokens


async def test_a_summary_that_came_to_nothing_is_on_the_account_of_the_next_request(tmp_path: Path):
    said, file = a_long_talk(), tmp_path / "store" / "originals.sqlite3"

    async def breaks_the_disk(heard: Heard, line: Line) -> None:
        if b"You summarise the earlier part" in heard.body:
            file.rename(tmp_path / "away")
            file.mkdir()
        await talks_and_summarises(heard, line)

    async with talked(breaks_the_disk, said, tmp_path) as (runtime, first):
        with pytest.raises(StoreUnavailable):
            await runtime.compressions.compress(LOCAL, first.session, runtime.compressions.usual)
        file.rmdir()
        (tmp_path / "away").rename(file)
        await ask(runtime, Wire.CHAT, body(Wire.CHAT, [*said, User("and?"), Assistant("So."), User("again?")]))
        account = (await noted(runtime))[-1].account

    assert account is not None
    assert (account.summaries, account.summary_tokens) == (1, 940)


async def test_each_summary_between_two_requests_is_on_the_account(tmp_path: Path):
    said = a_long_talk()
    async with talked(talks_and_summarises, said, tmp_path) as (runtime, first):
        for _ in range(2):
            await runtime.compressions.compress(LOCAL, first.session, runtime.compressions.usual)
            await runtime.compressions.undo(LOCAL, first.session)
        await ask(runtime, Wire.CHAT, body(Wire.CHAT, [*said, User("and?"), Assistant("So."), User("again?")]))
        account = (await noted(runtime))[-1].account

    assert account is not None
    assert (account.summaries, account.summary_tokens) == (2, 2 * 940)


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([User("hello")], ("nothing_to_do",)),
        ([User("list"), Assistant("", (Asked("call_a1"),)), Result("call_a1", "a few files")], ("below_threshold",)),
    ],
)
async def test_there_is_a_reason_wherever_nothing_was_saved(items: list[Item], why: tuple[str, ...], tmp_path: Path):
    async def answer(heard: Heard, line: Line) -> None:
        await line.send(http(answer_body(Wire.CHAT, Says("So.", tokens=(100, 7)))))

    async with (
        evil(answer) as upstream,
        running(parse(toml(upstream, Wire.CHAT, "kimi-k2"), {}, tmp_path), thread_max_chars=10**9) as runtime,
    ):
        await ask(runtime, Wire.CHAT, body(Wire.CHAT, items, tools=()))
        (metric,) = await noted(runtime)
        counted = runtime.metrics.text().decode()

    assert metric.reasons == why
    assert 'kimi_proxy_net_saved_tokens{provider="openai-evil"} 0.0' in counted


async def test_a_summary_is_on_an_account_even_if_the_request_that_carries_it_is_refused(tmp_path: Path):
    said = a_long_talk()

    async def refuses_at_last(heard: Heard, line: Line) -> None:
        if b"again?" in heard.body and b"You summarise" not in heard.body:
            await line.send(http(b'{"error": {"message": "slow down"}}', "429 Too Many Requests"))
        else:
            await talks_and_summarises(heard, line)

    async with talked(refuses_at_last, said, tmp_path) as (runtime, first):
        await runtime.compressions.compress(LOCAL, first.session, runtime.compressions.usual)
        await ask(runtime, Wire.CHAT, body(Wire.CHAT, [*said, User("and?"), Assistant("So."), User("again?")]))
        refused = (await noted(runtime))[-1]

    assert (refused.status, refused.cost_usd) == (429, None)
    assert refused.account is not None
    assert (refused.account.summaries, refused.account.summary_tokens) == (1, 940)
    assert refused.account.net_saved_tokens == -940
    assert refused.account.net_saved_usd == pytest.approx(-(900 * 3 + 40 * 15) / 1e6)
