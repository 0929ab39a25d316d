"""Recorded conversations, played again: honest figures."""

from pathlib import Path

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, body

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config, parse
from kimi_proxy.features.accounting import Prices
from kimi_proxy.features.recording import RecordedRequest, Recording, RecordingHead, head_line, line, read
from kimi_proxy.lab.replay import BOTH, SANITIZER, ReplayOutcome, conversations, play, table
from kimi_proxy.lab.savings import PolicyFigures

RECORDINGS = Path(__file__).parent.parent / "recordings"
NAMES = ("debugging", "refactoring", "log-hunt")
PRICES = Prices(1, 0.1, 1.25, 5)
OFF = "off"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return parse("", {}, tmp_path)


def outcomes(path: Path, config: Config) -> dict[str, ReplayOutcome]:
    (conversation,) = conversations(path)
    return {outcome.policy: outcome for outcome in play(conversation, config)}


@pytest.mark.parametrize("name", NAMES)
def test_doing_nothing_comes_to_what_was_recorded(name: str, config: Config):
    with (RECORDINGS / f"{name}.jsonl").open("rb") as lines:
        usages = [taken.usage for taken in read(lines).requests if taken.usage]

    off = outcomes(RECORDINGS / f"{name}.jsonl", config)[OFF].figures

    assert off.input == sum(usage.input_tokens for usage in usages)
    assert off.cached == sum(usage.cached_tokens for usage in usages)
    assert off.output == sum(usage.output_tokens for usage in usages)
    assert (off.recoveries, off.extra_turns) == (0, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_never_takes_more_tokens_or_money(name: str, config: Config):
    found = outcomes(RECORDINGS / f"{name}.jsonl", config)
    off, shorter, both = (found[policy].figures for policy in (OFF, SANITIZER, BOTH))

    assert shorter.input <= off.input
    assert shorter.cost_usd <= off.cost_usd
    assert both.too_long <= shorter.too_long <= off.too_long


def turns(folder: Path, *items: Item, wire: Wire = Wire.CHAT, every_s: float = 10.0, window: int = 100_000) -> Path:
    """A recording with a request before each thing that the model says."""
    said = [at for at, item in enumerate(items) if isinstance(item, Assistant)]
    bodies = [body(wire, items[:at]).decode() for at in said]
    taken = [RecordedRequest(1 + at * every_s, wire, one, 200, None) for at, one in enumerate(bodies)]
    return put(folder, Recording(RecordingHead("m", window, PRICES), tuple(taken)))


def put(folder: Path, recording: Recording) -> Path:
    file = folder / f"{len(list(folder.iterdir()))}.jsonl"
    before = ["", *(taken.body for taken in recording.requests)]
    lines = [line(taken, one) for taken, one in zip(recording.requests, before, strict=False)]
    file.write_bytes(b"".join([head_line(recording.head), *lines]))
    return file


LOG = "".join(
    f"2026-01-01T00:00:{n % 60:02} INFO step {n} of the import wrote batch number {n * 7}\n" for n in range(400)
)
NEEDLE = "2026-01-01T00:00:30 INFO step 210 of the import wrote batch number 1470"


@pytest.mark.parametrize("wire", list(Wire))
def test_a_model_that_quotes_what_was_cut_has_to_read_it_back_first(wire: Wire, config: Config, tmp_path: Path):
    question = (User("does the import work?"), Assistant("", (Call("c1"),)), Result("c1", LOG))
    quoting = turns(tmp_path, *question, Assistant(f"It says: {NEEDLE}"), User("and?"), Assistant("fine"), wire=wire)
    silent = turns(tmp_path, *question, Assistant("It does."), User("and?"), Assistant("fine"), wire=wire)

    with_quote, without = outcomes(quoting, config)[SANITIZER], outcomes(silent, config)[SANITIZER]

    assert (with_quote.figures.recoveries, with_quote.figures.extra_turns) == (1, 1)
    assert (without.figures.recoveries, without.figures.extra_turns) == (0, 0)
    assert with_quote.requests == 3


def test_a_summary_is_an_extra_turn_that_is_paid_for(config: Config, tmp_path: Path):
    said: list[Item] = []
    for n in range(12):
        said += [User(f"question {n}: {'tell me more about it ' * 60}"), Assistant(f"answer {n}: {'so it is ' * 60}")]
    file = turns(tmp_path, *said, every_s=100.0, window=3_000)
    found = outcomes(file, config)
    off, both = found[OFF].figures, found[BOTH].figures

    assert both.compressions >= 1
    assert both.extra_turns == both.compressions
    assert both.too_long < off.too_long
    calls_without_asking = config.model_copy(
        update={"compression": config.compression.model_copy(update={"ask_provider": False})}
    )
    heuristic = outcomes(file, calls_without_asking)[BOTH].figures
    assert (heuristic.compressions, heuristic.extra_turns) == (both.compressions, 0)
    assert heuristic.cost_usd < both.cost_usd


def test_requests_that_nobody_answered_cost_nothing(config: Config, tmp_path: Path):
    with (RECORDINGS / "log-hunt.jsonl").open("rb") as lines:
        whole = read(lines)
    recorded = Recording(whole.head, whole.requests[:6])
    failed = RecordedRequest(0.0, Wire.RESPONSES, recorded.requests[0].body, 429, None)
    with_failure = Recording(recorded.head, (failed, *recorded.requests))

    assert outcomes(put(tmp_path, with_failure), config) == outcomes(put(tmp_path, recorded), config)


def outcome(policy: str, tokens: float, is_priced: bool = True) -> ReplayOutcome:
    return ReplayOutcome(policy, 1, PolicyFigures(cost_usd=tokens / 1e6, input=tokens, output=10), is_priced)


def test_a_loss_is_shown_as_one():
    off, worse = outcome("off", 1000), outcome("worse", 1100)

    assert worse.to_json(off)["tokens_saved_percent"] == -10.0
    assert worse.to_json(off)["cost_saved_percent"] == -10.0
    assert table([off, worse])[2].endswith("-10.0 %")


def test_without_prices_tokens_are_compared_and_no_money_is_shown():
    off, less = outcome("off", 1000, is_priced=False), outcome("less", 750, is_priced=False)

    assert less.to_json(off)["cost_saved_percent"] is None
    assert table([off, less])[2].split()[-3:] == ["–", "25.0", "%"]


def test_conversations_are_added_up():
    total = outcome("off", 1000).plus(outcome("off", 500, is_priced=False))

    assert (total.requests, total.figures.input, total.figures.output, total.cost_usd) == (2, 1500, 20, None)
