"""Plays a recorded conversation again, offline: what it would have cost under each policy.

The stages are those of the proxy; a provider's prompt cache, and what the model would have read back, are simulated.
"""

import hashlib
import itertools
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Part, Request, Wire
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.lines import common_head
from kimi_proxy.features import accounting, compression
from kimi_proxy.features.accounting import Prices, number
from kimi_proxy.features.compression import presets
from kimi_proxy.features.context import composition
from kimi_proxy.features.memory import TextWeight
from kimi_proxy.features.models import Models, Target
from kimi_proxy.features.pipeline import Draft, Stage, run_stages
from kimi_proxy.features.recording import RecordedRequest, Recording
from kimi_proxy.features.sessions import Session
from kimi_proxy.services.chat.compression import AutoCompression, Compressor
from kimi_proxy.services.chat.counting import TokenCounter
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.prompt_cache import PromptCaches
from kimi_proxy.services.chat.providers import RateLimiter
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.chat.summaries import Summaries, Summary, SummaryTask
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store import open_store
from kimi_proxy.services.workers.pool import Workers

OFF, SANITIZER, BOTH = "off", "sanitizer", "sanitizer + compression"
POLICIES = (OFF, SANITIZER, BOTH)

BUDGET_MS = 60_000  # a busy machine must not change what comes out
STORE_TTL_S = 10 * 365 * 86_400.0
STORE_BYTES = 4 * 1024**3
CALL_TOKENS = 60  # of a call by which the model reads something back: its name, an id, two numbers
NAME = "recorded"

# Of prompt caches.
MIN_TOKENS = 1024
STEP_TOKENS = 128
TTL_S = 300.0

MIN_LINE_CHARS = 20
MIN_WORD_CHARS = 12

_SESSION = Session("ses_0000000000000000")
_WORD = re.compile(rf"[\w./:@#-]{{{MIN_WORD_CHARS},}}")
_NUMBER = re.compile(r"^\s*\d+\s*[\t→│|:]")
# Ids are drawn at random. As the same one, they weigh the same in every run.
_ID = re.compile(r"\b(prn|msk|cmp)_[0-9a-hjkmnp-tv-z]{16}\b", re.ASCII)
# Clients move these marks to the end of the conversation with every request; they are no part of the text.
_MARK = re.compile(rb'(?:,\s*+|(?<![\s,])\s*+)"cache_control"\s*+:\s*+\{[^{}]*+\}\s*+,?')
_HAS_MARK = b'"cache_control"'

Count = Callable[[str], int]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PromptBlock:
    text: str
    tokens: int
    is_marked: bool = False  # the client asks to have everything up to its end cached


def blocks(request: Request, count: Count) -> tuple[PromptBlock, ...]:
    """Return the descriptions of the tools, the system prompt that stands apart, and each message."""
    weighed = composition(request, lambda text: TextWeight(count(with_fixed_ids(text))))
    members = request.members
    tools = bytes(members.get("tools") or b"")
    apart = bytes(members.get(request.format.system_member) or b"")
    made = [
        PromptBlock(_MARK.sub(b"", tools).decode("utf-8", "replace"), weighed.definitions, _HAS_MARK in tools),
        PromptBlock(_MARK.sub(b"", apart).decode("utf-8", "replace"), weighed.apart.tokens, _HAS_MARK in apart),
    ]
    for message, one in zip(request.messages, weighed.messages, strict=True):
        raw = request.body[message.start : message.end]
        made.append(PromptBlock(with_fixed_ids(_text(message.role, message.parts)), one.tokens, _HAS_MARK in raw))
    return tuple(block for block in made if block.tokens)


def with_fixed_ids(text: str) -> str:
    return _ID.sub(r"\1_0000000000000000", text) if "_" in text else text


def _text(role: str, parts: Iterable[Part]) -> str:
    texts = [role]
    for part in parts:
        text = part.text or part.body[part.start : part.end].decode("utf-8", "replace")
        texts.append(f"{part.kind} {part.name} {part.call_id}\n{text}")
    return "\n".join(texts)


def written_after(request: Request, following: Request | None) -> str:
    """Return what the model answered, by the next request; empty if that has another history."""
    later = following.messages[len(request.messages) :] if following else ()
    answer = itertools.takewhile(lambda message: message.role == "assistant", later)
    return "\n".join(part.text for message in answer for part in message.parts)


def needed_passages(came: Request, left: Request, written: str) -> list[str]:
    """Return the passages that were cut and that `written` draws on.

    The recorded model saw everything. Where it quotes, in an answer or in the arguments of a call, a line of at least
    20 characters or a word of at least 12 that stands in what was cut and nowhere in what was left, it would have had
    to read that back first. It is taken to read all of the lines in a row that were cut there.
    """
    if came.body == left.body or not written:
        return []
    said = f"{written}\n{_unescaped(written)}"
    seen = _texts(left)
    seen_lines = {_bare(line) for text in seen for line in text.split("\n")}
    shown = "\n".join(seen)
    words = {word for word in _words(said) if word not in shown}
    cut = (text for text in _texts(came) if text not in seen)
    return [run for text in cut for run in _runs(text, seen_lines) if _is_quoted(run, words, said)]


def _runs(text: str, seen_lines: set[str]) -> Iterator[str]:
    """Return lines in a row that are not seen any more; empty ones among them are no end."""
    run: list[str] = []
    for line in text.split("\n"):
        bare = _bare(line)
        if bare and bare in seen_lines:
            if run:
                yield "\n".join(run)
            run = []
        elif bare or run:
            run.append(line)
    if run:
        yield "\n".join(run)


def _is_quoted(run: str, words: set[str], said: str) -> bool:
    if any(word in run for word in words):
        return True
    lines = map(_bare, run.split("\n"))
    return any(len(line) >= MIN_LINE_CHARS and line in said for line in lines)


def _bare(line: str) -> str:
    """Return a line without the number that a tool put before it."""
    return _NUMBER.sub("", line, count=1).strip()


def _unescaped(written: str) -> str:
    """The arguments of a call are JSON, in which a quote is two characters."""
    return written.replace('\\"', '"').replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")


def _words(text: str) -> Iterator[str]:
    bare = (word.strip("./:@#-") for word in _WORD.findall(text))
    return (word for word in bare if len(word) >= MIN_WORD_CHARS)


def _texts(request: Request) -> dict[str, None]:
    """Each once, in the order in which they are read."""
    return dict.fromkeys(part.text for message in request.messages for part in message.parts)


class CachingProvider:
    """Simulates a provider's prompt cache: what it reads there, what it puts there, and what it reads anew.

    OpenAI and those who speak its API keep the beginning of every request by themselves and find the longest one that a
    new request shares, in steps of 128 tokens. Anthropic keeps a request up to each block that the client marks, and
    finds only such ends again. Both need 1,024 tokens at least and forget after five minutes without use.
    Requests come in the order of time.
    """

    def __init__(self, wire: Wire, count: Count, ttl_s: float = TTL_S) -> None:
        self._cache = _Marked(ttl_s) if wire.format.has_cache_marks else _Prefixes(ttl_s, count)

    def ask(self, request: Sequence[PromptBlock], output_tokens: int, at: float) -> Usage:
        cached, written = self._cache.ask(request, at)
        return Usage(sum(block.tokens for block in request), output_tokens, cached, written)


@dataclass(slots=True)
class _Kept:
    blocks: tuple[PromptBlock, ...]
    used: float


class _Prefixes:
    """Whole requests; a new one shares a beginning with some of them."""

    def __init__(self, ttl_s: float, count: Count) -> None:
        self._ttl_s = ttl_s
        self._count = count
        self._kept: list[_Kept] = []

    def ask(self, request: Sequence[PromptBlock], at: float) -> tuple[int, int]:
        self._kept = [kept for kept in self._kept if at - kept.used <= self._ttl_s]
        shared = [(self._shared(kept.blocks, request), kept) for kept in self._kept]
        most, found = max(shared, key=lambda one: one[0], default=(0, None))
        if found is not None:
            found.used = at
        # What this request repeats to its last word is not kept twice.
        self._kept = [kept for kept in self._kept if kept.blocks != tuple(request[: len(kept.blocks)])]
        self._kept.append(_Kept(tuple(request), at))
        return (most // STEP_TOKENS * STEP_TOKENS if most >= MIN_TOKENS else 0), 0

    def _shared(self, kept: Sequence[PromptBlock], request: Sequence[PromptBlock]) -> int:
        tokens = 0
        for one, other in zip(kept, request, strict=False):
            if one.text == other.text:
                tokens += other.tokens
                continue
            return tokens + self._count(one.text[: common_head(one.text, other.text)])
        return tokens


class _Marked:
    """The ends of what clients marked; what lies before one is read in one piece, or not."""

    def __init__(self, ttl_s: float) -> None:
        self._ttl_s = ttl_s
        self._ends: dict[bytes, float] = {}

    def ask(self, request: Sequence[PromptBlock], at: float) -> tuple[int, int]:
        digest, tokens, cached, marked = sha256(), 0, 0, 0
        marks: list[bytes] = []
        last = max((place for place, block in enumerate(request) if block.is_marked), default=-1)
        for block in request[: last + 1]:
            digest.update(block.text.encode("utf-8", "surrogatepass") + b"\0")
            tokens += block.tokens
            if tokens < MIN_TOKENS:
                continue
            end = digest.digest()
            if at - self._ends.get(end, float("-inf")) <= self._ttl_s:
                self._ends[end], cached = at, tokens
            if block.is_marked:
                marks.append(end)
                marked = tokens
        self._ends |= dict.fromkeys(marks, at)
        return cached, max(0, marked - cached)


@dataclass(slots=True)
class ReplayOutcome:
    policy: str
    prices: Prices | None = None
    window: int | None = None
    requests: int = 0  # that the client sent
    input_tokens: int = 0  # of these all: cached, written and plain ones
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    largest_tokens: int = 0  # of one request
    too_long: int = 0  # requests that do not fit into the window: a provider would have refused them
    recoveries: int = 0  # passages that the model had to read back
    extra_turns: int = 0  # times that the provider was asked beside the client's requests
    compressions: int = 0
    cost_usd: float | None = None

    def __post_init__(self) -> None:
        self.cost_usd = None if self.prices is None else 0.0

    @property
    def plain_tokens(self) -> int:
        """Read at the full price."""
        return self.input_tokens - self.cached_tokens - self.cache_write_tokens

    def to_json(self, off: "ReplayOutcome") -> JsonObject:
        """Return it beside the outcome of doing nothing; a saving below zero is a loss."""
        is_priced = self.cost_usd is not None and off.cost_usd is not None
        return {
            **{name: getattr(self, name) for name in _FIELDS},
            "tokens_saved_percent": saved_percent(self.input_tokens, off.input_tokens),
            "cost_saved_percent": saved_percent(self.cost_usd or 0, off.cost_usd or 0) if is_priced else None,
        }

    def plus(self, other: "ReplayOutcome") -> "ReplayOutcome":
        """Return what two conversations come to; without a price of both there is none."""
        is_priced = self.cost_usd is not None and other.cost_usd is not None
        total = ReplayOutcome(self.policy, self.prices if is_priced else None)
        for name in _SUMMED:
            setattr(total, name, getattr(self, name) + getattr(other, name))
        total.largest_tokens = max(self.largest_tokens, other.largest_tokens)
        total.cost_usd = round((self.cost_usd or 0) + (other.cost_usd or 0), 9) if is_priced else None
        return total

    def add_request(self, usage: Usage) -> None:
        self.requests += 1
        self.largest_tokens = max(self.largest_tokens, usage.input_tokens)
        self.too_long += self.window is not None and usage.input_tokens > self.window
        self._add(usage)

    def add_extra_turn(self, usage: Usage) -> None:
        self.extra_turns += 1
        self._add(usage)

    def _add(self, usage: Usage) -> None:
        self.input_tokens += usage.input_tokens
        self.cached_tokens += usage.cached_tokens
        self.cache_write_tokens += usage.cache_write_tokens
        self.output_tokens += usage.output_tokens
        if self.prices is not None and self.cost_usd is not None:
            self.cost_usd = round(self.cost_usd + self.prices.cost_usd(usage), 9)


_FIELDS = (
    *("policy", "requests", "input_tokens", "plain_tokens", "cached_tokens", "cache_write_tokens", "output_tokens"),
    *("largest_tokens", "too_long", "recoveries", "extra_turns", "compressions", "cost_usd"),
)


_SUMMED = (
    *("requests", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "too_long"),
    *("recoveries", "extra_turns", "compressions"),
)


def saved_percent(now: float, before: float) -> float | None:
    return round(100 * (before - now) / before, 1) if before else None


_COLUMNS = dict(
    (
        *(("input", "input_tokens"), ("plain", "plain_tokens"), ("from cache", "cached_tokens")),
        *(("to cache", "cache_write_tokens"), ("output", "output_tokens"), ("largest", "largest_tokens")),
        *(("too long", "too_long"), ("recoveries", "recoveries"), ("extra turns", "extra_turns"), ("USD", "cost_usd")),
    )
)


def table(outcomes: list[ReplayOutcome]) -> list[str]:
    """Return a table for people; the first outcome is the one of doing nothing."""
    rows = [[one.policy, *(number(getattr(one, name)) for name in _COLUMNS.values())] for one in outcomes]
    savings = ["saved", *(_saved(one, outcomes[0]) for one in outcomes)]
    return accounting.table([[*row, saved] for row, saved in zip([["", *_COLUMNS], *rows], savings, strict=True)])


def _saved(outcome: ReplayOutcome, off: ReplayOutcome) -> str:
    cost, known = outcome.cost_usd, off.cost_usd
    saved = saved_percent(outcome.input_tokens if cost is None else cost, off.input_tokens if known is None else known)
    return "–" if saved is None else f"{saved:.1f} %"


@dataclass(slots=True)
class RecordingClock:
    """A clock that shows the time of the recording."""

    at: float = 0.0

    def __call__(self) -> float:
        return self.at


class CountedSummaries(Summaries):
    """No provider is asked: the summary is the outline, at the price that asking would have had."""

    async def from_provider(self, draft: Draft, task: SummaryTask) -> Summary:
        outlined = await self.outlined(task)
        wire, model = draft.request.wire, draft.target.model
        question = compression.body(wire, model, task.before, task.transcript(), task.max_tokens)
        read = sum(block.tokens for block in blocks(Request(wire, question), tokens.count))
        return replace(outlined, usage=Usage(read, tokens.count(with_fixed_ids(outlined.text))))


class Replay:
    def __init__(self, recording: Recording, config: Config) -> None:
        self._recording = recording
        self._config = config
        self._count = cache(tokens.count)

    async def under(self, policy: str, prices: Prices | None, window: int | None) -> ReplayOutcome:
        clock, outcome = RecordingClock(), ReplayOutcome(policy, prices, window)
        with TemporaryDirectory(prefix="kimi-proxy-replay-") as folder:
            async with _stages(policy, self._config, window, Path(folder), clock) as stages:
                providers: dict[Wire, CachingProvider] = {}
                for taken, request, written in self._turns():
                    clock.at = taken.at
                    whole = Draft(request, Target(NAME, request.model, NAME), _SESSION, LOCAL, request)
                    draft = await run_stages(whole, stages, _failed)
                    _add_summaries(draft, outcome)
                    provider = providers.setdefault(taken.wire, CachingProvider(taken.wire, self._count))
                    self._add_answer(taken, draft, written, provider, outcome)
        return outcome

    def _turns(self) -> Iterator[tuple[RecordedRequest, Request, str]]:
        """Yield the requests that were answered, each with what the model wrote; the others cost nothing."""
        answered = [taken for taken in self._recording.requests if taken.status == 200]
        following = (Request(taken.wire, taken.body.encode()) for taken in answered)
        request = next(following, None)
        for taken in answered:
            after = next(following, None)
            if request is not None:
                yield taken, request, written_after(request, after)
            request = after

    def _add_answer(
        self, taken: RecordedRequest, draft: Draft, written: str, provider: CachingProvider, outcome: ReplayOutcome
    ) -> None:
        """Add what the answer costs, with a turn more if the model has to read something back first."""
        sent = blocks(draft.request, self._count)
        output = self._count(written) if taken.usage is None else taken.usage.output_tokens
        passages = needed_passages(draft.came or draft.request, draft.request, written)
        if not passages:
            outcome.add_request(provider.ask(sent, output, taken.at))
            return
        called, read = CALL_TOKENS * len(passages), "\n".join(passages)
        outcome.recoveries += len(passages)
        outcome.add_request(provider.ask(sent, called, taken.at))
        again = (*sent, PromptBlock(f"call {read[:40]}", called), PromptBlock(read, self._count(read)))
        outcome.add_extra_turn(provider.ask(again, output, taken.at))


def _with_own_store(config: Config, home: Path) -> Config:
    """Return the settings with a file under `home` as the store, whatever database they name."""
    kept = config.store.model_copy(update={"url": "", "max_bytes": STORE_BYTES})
    lasting = config.mcp_pruner.model_copy(update={"prune_id_ttl_s": STORE_TTL_S})
    return config.model_copy(update={"home": home, "store": kept, "mcp_pruner": lasting})


@asynccontextmanager
async def _stages(
    policy: str, config: Config, window: int | None, home: Path, clock: RecordingClock
) -> AsyncIterator[Sequence[Stage]]:
    """Yield the stages of the proxy itself, over a store that is deleted afterwards."""
    if policy == OFF:
        yield ()
        return
    async with AsyncExitStack() as alive:
        store = await open_store(_with_own_store(config, home))
        alive.push_async_callback(store.close)
        workers, metrics, counter = Workers(), Metrics(), TokenCounter()
        alive.push_async_callback(workers.close)
        alive.callback(counter.close)
        shortening = config.sanitizer.model_copy(update={"enabled": True, "budget_ms": BUDGET_MS})
        decisions = ChatDecisions(store.originals, store.decisions)
        caches = PromptCaches(now=clock)
        sanitizer = Sanitizer(shortening, "http://127.0.0.1:8000", decisions, workers, metrics, caches, draw=_drawn())
        if policy == SANITIZER:
            yield (sanitizer.shorten,)
            return
        settings = config.compression.model_copy(update={"automatic": True})
        usual, _ = presets(settings, config.compaction)
        summaries = CountedSummaries(None, RateLimiter({}), metrics, settings.summary_timeout_s)
        models = Models({}, {} if window is None else {NAME: Model(provider=NAME, max_context_size=window)})
        compressor = Compressor(
            models, counter, store.originals, store.decisions, summaries, shortening.recover_tool, now=clock
        )
        automatic = AutoCompression(settings, usual, compressor, store.sessions, clock)
        yield sanitizer.shorten, compressor.repeat, automatic.compress


def _add_summaries(draft: Draft, outcome: ReplayOutcome) -> None:
    for note in draft.notes:
        match note.fields:
            case {"summary_input_tokens": int(read), "summary_output_tokens": int(written)}:
                outcome.compressions += 1
                if read:
                    outcome.add_extra_turn(Usage(read, written))


def _failed(stage: str, error: Exception) -> None:
    log.error("a stage failed in a replay", extra={"stage": stage, "what": type(error).__name__})


def _drawn() -> Callable[[int], bytes]:
    """Return a source of seeds that are the same in every run."""
    turns = itertools.count(1)
    return lambda size: hashlib.shake_256(next(turns).to_bytes(8, "big")).digest(size)
