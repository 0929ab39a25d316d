"""Plays a recorded conversation again, offline, under one policy after the other."""

import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.chat.usage import Usage
from kimi_proxy.core.config import Config
from kimi_proxy.core.providers import Model
from kimi_proxy.features.compression import asking
from kimi_proxy.features.compression.preset import presets
from kimi_proxy.features.compression.transcript import transcript
from kimi_proxy.features.models import Target
from kimi_proxy.features.pipeline import Draft, Step, run_steps
from kimi_proxy.features.pricing import Prices
from kimi_proxy.features.recording import Recording, Taken
from kimi_proxy.features.replay.blocks import Block, blocks, settled
from kimi_proxy.features.replay.needs import needed, written_after
from kimi_proxy.features.replay.outcome import Outcome
from kimi_proxy.features.replay.provider import Provider
from kimi_proxy.features.sessions import Session
from kimi_proxy.services.auto_compression import AutoCompression
from kimi_proxy.services.compressor import Compressor
from kimi_proxy.services.counting import Counting
from kimi_proxy.services.decisions import Decisions
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.sanitizer import Sanitizer
from kimi_proxy.services.store import open_store
from kimi_proxy.services.summaries import MAX_TRANSCRIPT_TOKENS, TRANSCRIPT_SHARE, Story, Summaries, Summary
from kimi_proxy.services.turns import Turns
from kimi_proxy.services.workers import Workers

OFF, SANITIZER, BOTH = "off", "sanitizer", "sanitizer + compression"
POLICIES = (OFF, SANITIZER, BOTH)

BUDGET_MS = 60_000  # a busy machine must not change what comes out
STORE_TTL_S = 10 * 365 * 86_400.0
STORE_BYTES = 4 * 1024**3
CALL_TOKENS = 60  # of a call by which the model reads something back: its name, an id, two numbers
NAME = "recorded"

_SESSION = Session("ses_0000000000000000")

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Clock:
    """Shows the time of the recording."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


class CountedSummaries(Summaries):
    """Nobody is asked: the summary is the heuristic one, at the price that asking would have had."""

    async def asked(self, draft: Draft, story: Story) -> Summary:
        outlined = await self.outlined(story)
        room = min(MAX_TRANSCRIPT_TOKENS, int(TRANSCRIPT_SHARE * (story.window or MAX_TRANSCRIPT_TOKENS)))
        told = transcript(story.messages, room, tokens.count)
        question = asking.body(draft.request.wire, draft.target.model, story.before, told, story.max_tokens)
        read = sum(block.tokens for block in blocks(Request(draft.request.wire, question), tokens.count))
        return replace(outlined, usage=Usage(read, tokens.count(settled(outlined.text))))


class Replay:
    def __init__(self, recording: Recording, config: Config) -> None:
        self._recording = recording
        self._config = config
        self._count = _remembering(tokens.count)

    async def under(self, policy: str, prices: Prices | None, window: int | None) -> Outcome:
        clock, outcome = Clock(), Outcome(policy, cost_usd=None if prices is None else 0.0)
        with TemporaryDirectory(prefix="kimi-proxy-replay-") as folder:
            async with _steps(policy, self._config, window, Path(folder), clock) as steps:
                providers: dict[Wire, Provider] = {}
                for taken, request, written in self._turns():
                    clock.at = taken.at
                    provider = providers.setdefault(taken.wire, Provider(taken.wire, self._count))
                    turn = _Turn(request, written, taken, provider, prices, window)
                    outcome = await self._played(turn, steps, outcome)
        return outcome

    def _turns(self) -> list[tuple[Taken, Request, str]]:
        """Requests that were answered, each with what the model wrote; nobody pays for the others."""
        answered = [taken for taken in self._recording.requests if taken.status == 200]
        requests = [Request(taken.wire, taken.body.encode()) for taken in answered]
        following = [*requests[1:], None]
        said = [written_after(one, other) for one, other in zip(requests, following, strict=True)]
        return list(zip(answered, requests, said, strict=True))

    async def _played(self, turn: "_Turn", steps: Sequence[Step], outcome: Outcome) -> Outcome:
        whole = Draft(turn.request, Target(NAME, turn.request.model, NAME), _SESSION, turn.request)
        draft = await run_steps(whole, steps, _failed)
        outcome = _with_summaries(draft, turn.prices, outcome)
        sent = blocks(draft.request, self._count)
        usage = turn.taken.usage
        output = self._count(turn.written) if usage is None else usage.output_tokens
        passages = needed(turn.request, draft.request, turn.written)
        if not passages:
            return outcome.with_request(turn.provider.ask(sent, output, turn.taken.at), turn.prices, turn.window)
        called = CALL_TOKENS * len(passages)
        outcome = outcome.with_request(turn.provider.ask(sent, called, turn.taken.at), turn.prices, turn.window)
        read = "\n".join(passages)
        again = (*sent, Block(f"call {read[:40]}", called), Block(read, self._count(read)))
        outcome = outcome.with_extra_turn(turn.provider.ask(again, output, turn.taken.at), turn.prices)
        return replace(outcome, recoveries=outcome.recoveries + len(passages))


@dataclass(frozen=True, slots=True)
class _Turn:
    request: Request
    written: str
    taken: Taken
    provider: Provider
    prices: Prices | None
    window: int | None


@asynccontextmanager
async def _steps(
    policy: str, config: Config, window: int | None, home: Path, clock: Clock
) -> AsyncIterator[Sequence[Step]]:
    """The steps of the proxy itself, over a store that goes away with them."""
    if policy == OFF:
        yield ()
        return
    async with AsyncExitStack() as alive:
        store = await open_store(home, ttl_s=STORE_TTL_S, max_bytes=STORE_BYTES)
        alive.push_async_callback(store.close)
        workers, metrics, counting = Workers(), Metrics(), Counting()
        alive.push_async_callback(workers.close)
        alive.callback(counting.close)
        shortening = config.sanitizer.model_copy(update={"enabled": True, "budget_ms": BUDGET_MS})
        decisions = Decisions(store, store.pinboard)
        sanitizer = Sanitizer(shortening, "http://127.0.0.1:8000", decisions, workers, metrics, draw=_drawn())
        if policy == SANITIZER:
            yield (sanitizer,)
            return
        settings = config.compression.model_copy(update={"automatic": True})
        usual, _ = presets(settings, config.compaction)
        summaries = CountedSummaries(None, Turns({}), metrics, settings.summary_timeout_s)
        models = {} if window is None else {NAME: Model(provider=NAME, max_context_size=window)}
        compressor = Compressor(
            models, counting, store, store.compressions, summaries, shortening.recover_tool, now=clock
        )
        yield sanitizer, compressor, AutoCompression(settings, usual, compressor, store.ledger, clock)


def _with_summaries(draft: Draft, prices: Prices | None, outcome: Outcome) -> Outcome:
    for note in draft.notes:
        match note.fields:
            case {"summary_input_tokens": int(read), "summary_output_tokens": int(written)}:
                outcome = replace(outcome, compressions=outcome.compressions + 1)
                if read:
                    outcome = outcome.with_extra_turn(Usage(read, written), prices)
    return outcome


def _failed(step: str, error: Exception) -> None:
    log.error("a step failed in a replay", extra={"step": step, "what": type(error).__name__})


def _drawn() -> Callable[[int], bytes]:
    """Seeds that are the same in every run."""
    turn = 0

    def draw(size: int) -> bytes:
        nonlocal turn
        turn += 1
        return hashlib.shake_256(turn.to_bytes(8, "big")).digest(size)

    return draw


def _remembering(count: Callable[[str], int]) -> Callable[[str], int]:
    known: dict[str, int] = {}

    def counted(text: str) -> int:
        if text not in known:
            known[text] = count(text)
        return known[text]

    return counted
