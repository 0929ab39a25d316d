"""Accounting: the savings of a request, their overhead, and reports of both."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.chat import Part, Request
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.counting import count_of
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.chat.context import Composition
from kimi_proxy.features.chat.pipeline import Note
from kimi_proxy.features.chat.safety_checks import SAFETY_CHECK
from kimi_proxy.features.sanitizer.plan import is_recovery_call
from kimi_proxy.features.sanitizer.recalls import recall_outcome

MILLION = 1_000_000
WEB_SEARCH_USD = 0.01  # Anthropic and OpenAI charge 10 USD for a thousand of them
MIN_CACHED_TOKENS = 2048  # a shorter prefix may not be cached by any provider
MISSES = 3  # requests that should have hit and did not, after which a model is believed to have no prompt cache
MAX_MODELS, MAX_SESSIONS = 1_000, 10_000
# A spreadsheet takes a cell that begins so for a formula, and runs it.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class Prices:
    """USD for a million tokens."""

    input: float
    cached: float  # read from the prompt cache
    cache_write: float  # put there
    output: float
    long_write: float = 0.0  # put there for the longer life; 0: as any other

    def cost_usd(self, usage: Usage) -> float:
        """Return the price of the provider's counts; no token is charged twice, whatever the counts."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        plain = usage.input_tokens - cached - written
        long = min(usage.long_write_tokens, written)
        write = (written - long) * self.cache_write + long * (self.long_write or self.cache_write)
        read = plain * self.input + cached * self.cached + write
        return round((read + usage.output_tokens * self.output) / MILLION + usage.web_searches * WEB_SEARCH_USD, 9)


def rewrite_usd(prices: Prices, tokens: int, usage: Usage) -> float:
    """Return the extra cost of reading tokens that could have come from the prompt cache."""
    paid = prices.cache_write if usage.cache_write_tokens else prices.input
    return round(tokens * (paid - prices.cached) / MILLION, 9)


def prices_of(model: Model | None) -> Prices | None:
    """Return None if the settings know no price; cache reads and writes cost as much as input unless they say more."""
    if model is None or not (model.input_usd_per_million or model.output_usd_per_million):
        return None
    plain = model.input_usd_per_million
    given = model.model_fields_set
    return Prices(
        input=plain,
        cached=model.cached_usd_per_million if "cached_usd_per_million" in given else plain,
        cache_write=model.cache_write_usd_per_million if "cache_write_usd_per_million" in given else plain,
        output=model.output_usd_per_million,
        long_write=model.long_write_usd_per_million,
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """Facts about a request when it is sent, in tokens by our own count."""

    before: int  # as received
    after: int
    old_before: int = 0  # of these, tokens that the provider had read in an earlier request, in this place
    old_after: int = 0
    is_rewritten: bool = False  # for the first time, we changed text that the provider may have cached
    recovered: int = 0  # texts in it that the client's own tools read back
    recoveries: int = 0  # how many of these are new
    summaries: int = 0
    summary: Usage = field(default_factory=Usage)  # what summaries cost that this request is the first to carry
    is_continued: bool = False  # the provider keeps what came before, and counts it: only the end is here
    is_marked: bool = False  # without our marks, nothing would be cached
    clears_thinking: bool = False  # the provider removed thinking because we asked it to


@dataclass(frozen=True, slots=True)
class Recalled:
    """The originals that the model read back within one answer."""

    calls: int = 0
    turns: int = 0  # number of additional calls to the provider
    first: Usage | None = None  # the provider's counts of the first turn only
    all: Usage | None = None  # and for all of them: the answer itself has the count of the last


@dataclass(frozen=True, slots=True)
class Account:
    """The net savings of a request, after all overhead.

    "Before" is the request as received, sent to the same provider, with the cache hits that it would have had. From its
    difference to "after" we subtract the cache hits lost because we changed cached text, the turns and tokens of
    recoveries, and the calls for summaries. The rest is the net, which can be negative.
    """

    tokens_before: int
    tokens_after: int  # of the request itself
    cache_lost_tokens: int = 0  # would have been read from the cache, but were paid for again
    recoveries: int = 0
    extra_turns: int = 0  # in addition to the requested one, without summaries
    recovery_tokens: int = 0
    summaries: int = 0
    summary_tokens: int = 0
    net_saved_tokens: int = 0
    cost_before_usd: float | None = None  # None if the settings know no price, or the provider sent no count
    net_saved_usd: float | None = None
    cache_lost_usd: float | None = None  # these two are taken off the net already
    overhead_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """The cost of an answer: the provider's count of all turns, and the prices of the models."""

    usage: Usage | None
    recalled: Recalled = field(default_factory=Recalled)
    prices_before: Prices | None = None  # of the model that the client asked for
    prices: Prices | None = None  # of the one that answered
    caches: bool = True  # the model is believed to have a prompt cache
    cleared: int = 0  # tokens that the provider took out of the request, and does not count
    ratio: float | None = None  # the provider's tokens for one of ours, in text; None: the ratio of this request

    def first(self, sent: Sent) -> Usage:
        """Return the provider's counts of the first turn, or our own."""
        return (self.recalled.first if self.recalled.turns else None) or self.usage or Usage(sent.after)

    def ratio_of(self, sent: Sent, weighed: int) -> float:
        """Return the ratio for text that was cut from a request whose `weighed` tokens of ours the provider counted."""
        if self.ratio is not None and self.usage is not None:
            return self.ratio
        # If the provider stores the conversation, its count includes text that we do not see.
        if not weighed or sent.is_continued:
            return 1.0
        return (self.first(sent).input_tokens + self.cleared) / weighed


def account(sent: Sent, bill: Bill) -> Account:
    """Return the account in the provider's tokens if it counted; otherwise in ours, and without money."""
    counted = _Counted(sent, bill)
    summary_tokens = sent.summary.input_tokens + sent.summary.output_tokens
    recovery_tokens = counted.recovered + counted.again
    done = Account(
        tokens_before=counted.before,
        tokens_after=counted.after,
        cache_lost_tokens=counted.lost,
        recoveries=sent.recoveries + bill.recalled.calls,
        extra_turns=bill.recalled.turns,
        recovery_tokens=recovery_tokens,
        summaries=sent.summaries,
        summary_tokens=summary_tokens,
        net_saved_tokens=counted.before - counted.after - counted.lost - recovery_tokens - summary_tokens,
    )
    if bill.usage is None or bill.prices_before is None or bill.prices is None:
        return done
    before = bill.prices_before.cost_usd(counted.usage_before)
    summary = bill.prices.cost_usd(sent.summary)
    net = before - bill.prices.cost_usd(bill.usage) - summary
    return replace(
        done,
        cost_before_usd=before,
        net_saved_usd=round(net, 9),
        cache_lost_usd=rewrite_usd(bill.prices, counted.lost, bill.usage),
        overhead_usd=round(summary + counted.recovery_usd(bill.prices), 9),
    )


def account_unanswered(sent: Sent, prices: Prices | None) -> Account:
    """Return the account of a request without an answer: only the summaries that it carries were paid for."""
    paid = sent.summary.input_tokens + sent.summary.output_tokens
    done = Account(sent.after, sent.after, summaries=sent.summaries, summary_tokens=paid, net_saved_tokens=-paid)
    if prices is None:
        return done
    paid_usd = prices.cost_usd(sent.summary)
    return replace(done, net_saved_usd=-paid_usd, cache_lost_usd=0.0, overhead_usd=paid_usd)


def account_observed(sent: Sent, bill: Bill, is_cold: bool) -> tuple[int, float | None]:
    """Return the tokens and USD that a request would have saved if it had been sent as `sent.after`.

    `bill.usage` is that of the request as received, and `bill.prices` are those of the model that would have answered.
    Possible recoveries are unknown and not included.
    """
    usage = bill.usage
    scale = 1.0 if usage is None else bill.ratio_of(sent, sent.before)
    removed = round((sent.before - sent.after) * scale)
    summary_tokens = sent.summary.input_tokens + sent.summary.output_tokens
    counted = usage.input_tokens + bill.cleared if usage is not None else sent.before
    new = round((sent.before - sent.old_before) * scale)
    old_before = max(0, counted - new) if sent.old_before else 0
    old_after = max(0, old_before - round((sent.old_before - sent.old_after) * scale))
    lost = min(old_after, usage.cached_tokens) if usage is not None and sent.is_rewritten and bill.caches else 0
    tokens = removed - lost - summary_tokens
    if usage is None or bill.prices_before is None or bill.prices is None:
        return tokens, None
    would = max(0, usage.input_tokens - removed)
    plain = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens)
    hits = max(0, usage.cached_tokens - max(0, old_before - old_after))
    if sent.is_marked and not usage.cached_tokens:
        hits = 0 if is_cold else old_after
        plain = 0
    hits = 0 if sent.is_rewritten else min(would, hits)
    is_written = bool(usage.cache_write_tokens) or sent.is_marked
    written = max(0, would - hits - plain) if is_written else 0
    long = written * usage.long_write_tokens // usage.cache_write_tokens if usage.cache_write_tokens else 0
    searches = usage.web_searches
    as_if = Usage(would, usage.output_tokens, hits, written, long_write_tokens=long, web_searches=searches)
    cost = bill.prices.cost_usd(as_if) + bill.prices.cost_usd(sent.summary)
    return tokens, round(bill.prices_before.cost_usd(usage) - cost, 9)


class _Counted:
    """The sides of an account, in the provider's tokens."""

    def __init__(self, sent: Sent, bill: Bill) -> None:
        self._bill = bill
        first = bill.first(sent)
        scale = bill.ratio_of(sent, sent.after)
        self._first = first
        self.after = first.input_tokens
        cleared = bill.cleared if sent.clears_thinking else 0
        self.before = max(0, self.after + round((sent.before - sent.after) * scale)) + cleared
        # Texts that were read back would not be there had nothing been cut; what others cut is none of our savings.
        self.recovered = round(min(sent.recovered, max(0, sent.before - sent.after)) * scale)
        # Thinking and images are in the provider's count of what is old, and in no text that we cut.
        new = round((sent.after - sent.old_after) * scale)
        self._old_after = max(0, first.input_tokens + bill.cleared - new) if sent.old_after else 0
        old_cut = round((sent.old_before - sent.old_after) * scale)
        self._old_before = max(0, self._old_after + old_cut - self.recovered) + cleared
        self._is_lost = sent.is_rewritten and bill.caches and not sent.is_marked
        self._is_marked = sent.is_marked
        self._cached = min(first.cached_tokens, self.after)

    @property
    def lost(self) -> int:
        """Return the tokens that the provider read again although its prompt cache could have held them."""
        return max(0, min(self._old_after, self.after) - self._cached) if self._is_lost else 0

    @property
    def again(self) -> int:
        """Return the tokens that further turns read, and that the first one wrote to request them."""
        usage = self._bill.usage
        first = self._first
        if not self._bill.recalled.turns or usage is None:
            return 0
        return max(0, usage.input_tokens - first.input_tokens) + first.output_tokens

    def recovery_usd(self, prices: Prices) -> float:
        """Return what reading back cost: the further turns, and texts of the client's own tools in the request."""
        usage = self._bill.usage
        first = self._first
        read = self.recovered * (prices.cached if self._cached else prices.input) / MILLION
        if not self._bill.recalled.turns or usage is None:
            return read
        wanted = max(0, usage.output_tokens - first.output_tokens)
        return read + max(0.0, prices.cost_usd(usage) - prices.cost_usd(replace(first, output_tokens=wanted)))

    @property
    def usage_before(self) -> Usage:
        """Return the usage without kimi-proxy: one turn, with the cache hits that it would have had."""
        usage = self._bill.usage or Usage()
        first = self._first
        would = self.before - self.recovered
        output = usage.output_tokens - (first.output_tokens if self._bill.recalled.turns else 0)
        if self._is_marked:
            return Usage(would, max(0, output), web_searches=usage.web_searches)
        plain = max(0, self.after - self._cached - first.cache_write_tokens)
        written = max(0, would - self._hits - plain) if first.cache_write_tokens else 0
        long = written * first.long_write_tokens // first.cache_write_tokens if written else 0
        searches = usage.web_searches
        return Usage(would, max(0, output), self._hits, written, long_write_tokens=long, web_searches=searches)

    @property
    def _hits(self) -> int:
        """Return the cache hits that the request would have had.

        If we broke the cache, all old text would have hit. If it hit, so would the text cut from old messages: it would
        have been cheap to read, so cutting it saves little. If nothing hit, nothing would have.
        """
        would = self.before - self.recovered
        if self._is_lost:
            return min(would, max(self._cached, self._old_before))
        old = max(0, self._cached + self._old_before - self._old_after)
        return min(would, old) if self._cached else 0


class PromptCacheBelief:
    """Tracks whether a model's provider has a prompt cache; assumed until several requests in a row have missed it."""

    def __init__(self) -> None:
        self._misses: LruCache[str, int] = LruCache(MAX_MODELS)

    def __getitem__(self, model: str) -> bool:
        return (self._misses.get(model) or 0) < MISSES

    def observe(self, model: str, sent: Sent, usage: Usage | None) -> None:
        if usage is None:
            return
        if usage.cached_tokens:
            self._misses.put(model, 0)
        elif sent.old_after >= MIN_CACHED_TOKENS and not sent.is_rewritten:
            self._misses.put(model, (self._misses.get(model) or 0) + 1)


@dataclass(frozen=True, slots=True)
class Weights:
    """A request as received or as sent, in tokens by our own count."""

    total: int
    old: int = 0  # before the model's last answer, and before what the client changed
    recovered: int = 0
    recoveries: int = 0
    has_outputs: bool = False  # of tools


def weights(request: Request, weighed: Composition, changed_from: int | None = None) -> Weights:
    """Return the tokens of old text in a request, and of text that the client's own tools read back.

    From the message `changed_from` on nothing is old: the client changed that message, so the provider has to read all
    that follows again.
    """
    said = [at for at, message in enumerate(request.messages) if message.role == "assistant"]
    ends = [*said[-1:], *([changed_from] if changed_from is not None else [])]
    old = weighed.messages[min(ends)].before if said else 0
    recalls: dict[str, Part | None] = {}  # by the id of a call; None: it reads nothing back
    places: list[int] = []
    has_outputs = False
    for at, message in enumerate(request.messages):
        calls = (part for part in message.parts if part.kind == "tool_call")
        recalls |= {part.call_id: part if part.derive(is_recovery_call) else None for part in calls}
        results = [part for part in message.parts if part.kind == "tool_result"]
        has_outputs = has_outputs or bool(results)
        if any(_is_read_back(recalls.get(result.call_id), result) for result in results):
            places.append(at)
    new = sum(1 for at in places if at > (said[-1] if said else -1))
    recovered = sum(weighed.messages[at].tools_tokens for at in places)
    return Weights(weighed.total, old, recovered, new, has_outputs)


def _is_read_back(call: Part | None, result: Part) -> bool:
    """Return whether a result is text that was read back; a refused call reads nothing."""
    return call is not None and recall_outcome(call, result) == "answered"


def sent_tokens(received: Weights, outgoing: Weights, notes: Iterable[Note], is_rewritten: bool) -> Sent:
    """Return all that a request carries on its way out, with the costs in its notes."""
    resent = 0
    summaries = 0
    summary = Usage()
    for note in notes:
        resent += _count(note, "prefix_tokens_resent")
        read = _count(note, "summary_input_tokens")
        written = _count(note, "summary_output_tokens")
        summaries += read > 0
        summary = Usage(summary.input_tokens + read, summary.output_tokens + written)
    return Sent(
        received.total,
        outgoing.total,
        received.old,
        outgoing.old,
        is_rewritten or resent > 0,
        received.recovered,
        received.recoveries,
        summaries,
        summary,
    )


def _count(note: Note, name: str) -> int:
    value = note.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


class PrefixTracker:
    """A prompt cache knows the beginning of a request, and a model; whenever we change either, it is lost."""

    def __init__(self) -> None:
        self._known: LruCache[str, str] = LruCache(MAX_SESSIONS)

    def changes(self, session: str, prefix: str) -> bool:
        """Return whether a session's requests begin otherwise than before; False for a new one."""
        before = self._known.get(session)
        self._known.put(session, prefix)
        return before not in (None, prefix)


@dataclass(frozen=True, slots=True)
class SavingsLine:
    """The sums over the requests of a session to a model. Money is summed as far as prices are known."""

    reasons: Mapping[str, int]  # why nothing was saved, and in how many requests
    session: str
    title: str
    directory: str  # of the project, if the agent reports its directory
    model: str
    requests: int
    tokens_before: int
    tokens_after: int
    cached_tokens: int
    cache_lost_tokens: int
    recoveries: int
    extra_turns: int
    recovery_tokens: int
    summaries: int
    summary_tokens: int
    net_saved_tokens: int
    observed_tokens: int  # would have been saved by requests that were only observed
    cost_before_usd: float | None
    cost_usd: float | None
    net_saved_usd: float | None
    cache_lost_usd: float | None
    overhead_usd: float | None
    cache_missed_usd: float | None  # whether we caused the miss or not
    observed_usd: float | None

    @property
    def is_of_safety_checks(self) -> bool:
        return self.reasons.get(SAFETY_CHECK, 0) >= self.requests > 0

    def figures(self) -> dict[str, int | float | None]:
        """Return counts and money, which is rounded so that sums of it look as they were meant."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        return counts | {name: None if (usd := getattr(self, name)) is None else round(usd, 6) for name in _MONEY}


NAMES = tuple(field.name for field in fields(SavingsLine) if field.name != "reasons")
_TEXTS = ("session", "title", "directory", "model")
_MONEY = tuple(name for name in NAMES if name.endswith("_usd"))
_COUNTS = tuple(name for name in NAMES if name not in (*_TEXTS, *_MONEY))


def sum_lines(lines: Iterable[SavingsLine], model: str = "", directory: str = "") -> SavingsLine:
    """Return the sum of all; a price that is not known adds nothing."""
    lines = list(lines)
    counts = [sum(getattr(line, name) for line in lines) for name in _COUNTS]
    money = [_sum([getattr(line, name) for line in lines]) for name in _MONEY]
    reasons: Counter[str] = Counter()
    for line in lines:
        reasons.update(line.reasons)
    return SavingsLine(reasons, "", "", directory, model, *counts, *money)


def sum_safety_checks(lines: Iterable[SavingsLine]) -> SavingsLine:
    """Return the sum of the lines that consist of the safety checks of Claude Code's auto mode."""
    return sum_lines(line for line in lines if line.is_of_safety_checks)


def describe_safety_checks(checks: SavingsLine) -> str:
    """Return what the checks cost, in words."""
    usd = "" if checks.cost_usd is None else f", {checks.cost_usd:.4f} USD"
    return (
        f"{count_of(checks.requests, 'safety check')} of Claude Code's auto mode: {checks.tokens_after:,} tokens{usd}"
    )


def outcome(line: SavingsLine) -> str:
    """Describe a session's savings; for a loss, also its causes."""
    if line.net_saved_tokens >= 0:
        return f"{line.net_saved_tokens:,} tokens saved{_usd(line.net_saved_usd)}"
    overheads = (
        ("our recall tool in every request, and nothing long to cut", line.tokens_after - line.tokens_before),
        ("cache reads lost by a change of the model or of the history", line.cache_lost_tokens),
        ("reading back", line.recovery_tokens),
        ("summaries", line.summary_tokens),
    )
    why = ", ".join(f"{name} ({tokens:,})" for name, tokens in overheads if tokens > 0)
    return f"{-line.net_saved_tokens:,} tokens more than without it: {why or 'overhead of the cuts'}"


def by_model(lines: Sequence[SavingsLine]) -> list[SavingsLine]:
    models = dict.fromkeys(line.model for line in lines)
    return [sum_lines((line for line in lines if line.model == model), model) for model in models]


def by_project(lines: Sequence[SavingsLine]) -> list[SavingsLine]:
    """Return the sums by the folder in which an agent works; "" is for those that do not say."""
    folders = dict.fromkeys(line.directory for line in lines)
    return [sum_lines((line for line in lines if line.directory == one), directory=one) for one in folders]


def as_json(lines: Sequence[SavingsLine], since: str | None) -> JsonObject:
    sessions: list[JsonValue] = [_to_json(line, *_TEXTS) for line in lines]
    models: list[JsonValue] = [_to_json(line, "model") for line in by_model(lines)]
    totals = {"sessions": len({line.session for line in lines}), **_to_json(sum_lines(lines))}
    checks = _to_json(sum_safety_checks(lines))
    return {"since": since, "totals": totals, "safety_checks": checks, "models": models, "sessions": sessions}


def as_csv(lines: Sequence[SavingsLine]) -> str:
    page = io.StringIO()
    rows = csv.writer(page)
    rows.writerow((*NAMES, "reasons"))
    for line in lines:
        why = " ".join(f"{reason}={count}" for reason, count in _often(line))
        rows.writerow([*(_cell(getattr(line, name)) for name in NAMES), why])
    return page.getvalue()


def as_text(lines: Sequence[SavingsLine], since: str | None) -> str:
    """Return it for people: the sums, and each session under them."""
    after = f" since {since}" if since else ""
    if not lines:
        return f"no requests{after}\n"
    all = sum_lines(lines)
    sessions = len({line.session for line in lines})
    out = [f"{count_of(all.requests, 'request')} in {count_of(sessions, 'session')}{after}", *_sum_of(all)]
    if (checks := sum_safety_checks(lines)).requests:
        out.append(f"of these, {describe_safety_checks(checks)}")
    if all.reasons:
        out.append("nothing was saved because: " + ", ".join(f"{why} ({n:,})" for why, n in _often(all)))
    return "\n".join([*out, "", *_grid(lines)]) + "\n"


def _sum_of(all: SavingsLine) -> list[str]:
    rows = [
        ("as they came", all.tokens_before, all.cost_before_usd),
        ("as they left", all.tokens_after, all.cost_usd),
        ("cache reads lost", all.cache_lost_tokens, None),
        (
            f"read back ({count_of(all.recoveries, 'time')}, {count_of(all.extra_turns, 'extra turn')})",
            all.recovery_tokens,
            None,
        ),
        (f"summaries ({all.summaries:,})", all.summary_tokens, None),
    ]
    is_observed = bool(all.observed_tokens or all.observed_usd)
    if all.net_saved_tokens or not is_observed:
        rows.append(("saved after all", all.net_saved_tokens, all.net_saved_usd))
    if is_observed:  # such requests were sent as they came
        rows.append(("would have saved (observed)", all.observed_tokens, all.observed_usd))
    _, saved_tokens, saved_usd = rows[-1]
    width = max(len(name) for name, *_ in rows)
    *lines, saved = [f"  {name:<{width}}  {tokens:>14,} tokens" for name, tokens, _ in rows]
    share = _share(saved_tokens, all.tokens_before)
    share_usd = _share(saved_usd or 0.0, all.cost_before_usd)
    usd = [_usd(usd) for *_, usd in rows]
    column = " " * len(share)  # so that the money stays in one column
    return [
        *(f"{line}{column}{cost}".rstrip() for line, cost in zip(lines, usd[:-1], strict=True)),
        f"{saved}{share}{usd[-1]}{share_usd if usd[-1] else ''}",
    ]


def _share(part: float, whole: float | None) -> str:
    return f" ({100 * part / whole:.1f} %)" if whole else ""


_COLUMNS = {
    "requests": "requests",
    "before": "tokens_before",
    "after": "tokens_after",
    "cache lost": "cache_lost_tokens",
    "read back": "recovery_tokens",
    "summaries": "summary_tokens",
    "saved": "net_saved_tokens",
    "USD before": "cost_before_usd",
    "USD": "cost_usd",
    "USD saved": "net_saved_usd",
}


def _grid(lines: Sequence[SavingsLine]) -> list[str]:
    titles = (((line.title or line.session)[:40], line.model[:40]) for line in lines)
    cells = ((number(getattr(line, name)) for name in _COLUMNS.values()) for line in lines)
    rows = ((*title, *row) for title, row in zip(titles, cells, strict=True))
    return table([("session", "model", *_COLUMNS), *rows], left=2)


def table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Return lines of aligned cells, the first `left` columns to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ["<"] * left + [">"] * (len(widths) - left)
    cells = (zip(row, sides, widths, strict=True) for row in rows)
    return ["  ".join(f"{cell:{side}{width}}" for cell, side, width in row).rstrip() for row in cells]


def number(value: float | None) -> str:
    """Return a count, an amount in USD, or a dash if it is unknown."""
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _to_json(line: SavingsLine, *texts: str) -> JsonObject:
    return {**{name: getattr(line, name) for name in texts}, **line.figures(), "reasons": dict(_often(line))}


def _often(line: SavingsLine) -> list[tuple[str, int]]:
    return sorted(line.reasons.items(), key=lambda one: (-one[1], one[0]))


def _sum(money: Sequence[float | None]) -> float | None:
    known = [usd for usd in money if usd is not None]
    return round(math.fsum(known), 9) if known else None


def _usd(usd: float | None) -> str:
    return "" if usd is None else f"  {usd:>10.4f} USD"


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
