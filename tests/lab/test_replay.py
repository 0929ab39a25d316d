"""Recorded conversations, played again: honest figures."""

from pathlib import Path

import pytest
from tests.conversations import Assistant, Call, Item, Result, User, body
from tests.deep import deep, too

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config, parse
from kimi_proxy.features.accounting import Prices
from kimi_proxy.features.recording import RecordedRequest, Recording, RecordingHead, read
from kimi_proxy.lab.replay import BOTH, OFF, POLICIES, SANITIZER, Replay, ReplayOutcome

RECORDINGS = Path(__file__).parent.parent / "recordings"
NAMES = ("debugging", "refactoring", "log-hunt")
PRICES = Prices(1, 0.1, 1.25, 5)


def recording(name: str) -> Recording:
    with (RECORDINGS / f"{name}.jsonl").open("rb") as lines:
        return read(lines)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return parse("", {}, tmp_path)


async def played(recorded: Recording, config: Config, window: int | None = None) -> dict[str, ReplayOutcome]:
    head, replay = recorded.head, Replay(recorded, config)
    return {policy: await replay.under(policy, head.prices, window or head.max_context) for policy in POLICIES}


@pytest.mark.parametrize("name", NAMES)
async def test_doing_nothing_comes_to_what_was_recorded(name: str, config: Config):
    recorded = recording(name)
    usages = [taken.usage for taken in recorded.requests if taken.usage]

    off = await Replay(recorded, config).under(OFF, recorded.head.prices, recorded.head.max_context)

    assert off.input_tokens == sum(usage.input_tokens for usage in usages)
    assert off.cached_tokens == sum(usage.cached_tokens for usage in usages)
    assert off.output_tokens == sum(usage.output_tokens for usage in usages)
    assert (off.recoveries, off.extra_turns) == (0, 0)


@pytest.mark.parametrize("name", [NAMES[0], *map(too, NAMES[1:])])
async def test_a_recording_never_takes_more_tokens_or_money(name: str, config: Config):
    # That the figures are the same every time is seen in tests/test_replay_docs.py.
    found = await played(recording(name), config)

    assert found[SANITIZER].input_tokens <= found[OFF].input_tokens
    assert (found[SANITIZER].cost_usd or 0) <= (found[OFF].cost_usd or 0)
    assert found[BOTH].too_long <= found[SANITIZER].too_long <= found[OFF].too_long


def turns(*items: Item, wire: Wire = Wire.CHAT, every_s: float = 10.0) -> Recording:
    """A request before each thing that the model says."""
    said = [at for at, item in enumerate(items) if isinstance(item, Assistant)]
    bodies = [body(wire, items[:at]).decode() for at in said]
    taken = [RecordedRequest(at * every_s, wire, one, 200, None) for at, one in enumerate(bodies)]
    return Recording(RecordingHead("m", 100_000, PRICES), tuple(taken))


LOG = "".join(
    f"2026-01-01T00:00:{n % 60:02} INFO step {n} of the import wrote batch number {n * 7}\n" for n in range(400)
)
NEEDLE = "2026-01-01T00:00:30 INFO step 210 of the import wrote batch number 1470"


@deep
@pytest.mark.parametrize("wire", [Wire.CHAT, too(Wire.MESSAGES), too(Wire.RESPONSES)])
async def test_a_model_that_quotes_what_was_cut_has_to_read_it_back_first(wire: Wire, config: Config):
    question = (User("does the import work?"), Assistant("", (Call("c1"),)), Result("c1", LOG))
    quoting = turns(*question, Assistant(f"It says: {NEEDLE}"), User("and?"), Assistant("fine"), wire=wire)
    silent = turns(*question, Assistant("It does."), User("and?"), Assistant("fine"), wire=wire)

    with_quote, without = await played(quoting, config), await played(silent, config)

    assert (with_quote[SANITIZER].recoveries, with_quote[SANITIZER].extra_turns) == (1, 1)
    assert (without[SANITIZER].recoveries, without[SANITIZER].extra_turns) == (0, 0)
    assert with_quote[SANITIZER].requests == with_quote[OFF].requests == 3


async def test_a_summary_is_an_extra_turn_that_is_paid_for(config: Config):
    said: list[Item] = []
    for n in range(12):
        said += [User(f"question {n}: {'tell me more about it ' * 60}"), Assistant(f"answer {n}: {'so it is ' * 60}")]
    outcomes = await played(turns(*said, every_s=100.0), config, window=3_000)

    assert outcomes[BOTH].compressions >= 1
    assert outcomes[BOTH].extra_turns == outcomes[BOTH].compressions
    assert outcomes[BOTH].too_long < outcomes[OFF].too_long
    asked_nobody = config.model_copy(
        update={"compression": config.compression.model_copy(update={"ask_provider": False})}
    )
    heuristic = (await played(turns(*said, every_s=100.0), asked_nobody, window=3_000))[BOTH]
    assert (heuristic.compressions, heuristic.extra_turns) == (outcomes[BOTH].compressions, 0)
    assert heuristic.cost_usd is not None
    assert outcomes[BOTH].cost_usd is not None
    assert heuristic.cost_usd < outcomes[BOTH].cost_usd


@deep
async def test_requests_that_nobody_answered_cost_nothing(config: Config):
    whole = recording("log-hunt")
    recorded = Recording(whole.head, whole.requests[:6])
    failed = RecordedRequest(0.0, Wire.RESPONSES, recorded.requests[0].body, 429, None)
    with_failure = Recording(recorded.head, (failed, *recorded.requests))

    assert await played(with_failure, config) == await played(recorded, config)
