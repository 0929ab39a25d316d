"""Metering of a request: its tokens, its share of the context window, its price."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, TypedDict

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import LOCAL_SCOPE
from kimi_proxy.core.chat.reply import ReplyFacts, Usage
from kimi_proxy.core.config.providers import Model
from kimi_proxy.features.accounting import Account, Prices, Recalled, Sent, prices_of
from kimi_proxy.features.chat.context import Context
from kimi_proxy.features.chat.prompt_cache import ExplainedMiss

MAX_SESSIONS = 10_000
GONE = "client_gone"
PAID = 200  # providers charge for no answer of another status
MAX_AGE_S = 5.0  # an older one loses to the proxy's own count
MAX_TOKENS = 2**40  # a larger number is not a count
MAX_RESET_S = 366 * 86_400.0  # no plan has a longer window
CountedBy: TypeAlias = Literal["provider", "estimate"]
AlertLevel: TypeAlias = Literal["caution", "warning", "critical"]
Level: TypeAlias = Literal["ok", "unknown", AlertLevel]

# Shares of the context window at which an alert is published, highest first.
LEVELS: tuple[tuple[float, AlertLevel], ...] = ((95.0, "critical"), (90.0, "warning"), (80.0, "caution"))
_RANKS: Mapping[str, int] = {name: -rank for rank, (_, name) in enumerate(LEVELS, -len(LEVELS))}


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """The used share of a plan in a time window, as the provider counts it."""

    name: str  # 5h, 7d
    used: float  # 1.0 is all of it
    resets: float | None  # in seconds of wall time


def without_absurd_resets(windows: Iterable[QuotaWindow], at: float) -> tuple[QuotaWindow, ...]:
    """Return the windows of a plan as they were at a time: a reset more than a year from then is unknown."""
    return tuple(
        one if one.resets is None or abs(one.resets - at) <= MAX_RESET_S else replace(one, resets=None)
        for one in windows
    )


@dataclass(frozen=True, slots=True)
class Metric:
    """One request. Its tokens are estimated until the provider has counted them."""

    id: str
    session: str
    at: float  # seconds of wall time
    provider: str
    model: str
    api: str
    tokens_estimated: int  # of the request as it left
    tokens_saved: int  # also an estimate: the tokens it had more when received; negative if we added some
    reasons: tuple[str, ...]  # why nothing was saved
    max_context: int | None  # of the model; None if the settings do not know it
    status: int = 0  # the provider's; 0 until there is one
    outcome: str = "running"  # then ok, client_gone, or the code of an error
    finish: str = ""  # why the answer ended, in the provider's word
    input_tokens: int | None = None  # from here on as the provider counts; cached ones are among them
    cached_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None  # None if the settings know no price
    first_token_ms: int | None = None
    duration_ms: int | None = None
    context: Context | None = None  # its composition; None if it was not counted
    account: Account | None = None  # its net savings; None until the response has ended, and if there was none
    miss: ExplainedMiss | None = None  # why the provider's prompt cache was missed; None if it was not
    cache_life_s: float | None = None  # of what that cache has of it; None if it has nothing
    observed_tokens: int | None = None  # it would have saved so much; None if it was not only observed
    observed_usd: float | None = None
    quota: tuple[QuotaWindow, ...] = ()  # of the plan that paid for it
    scope: str = LOCAL_SCOPE  # whose it is
    person: str = ""
    team: str = ""

    @property
    def tokens(self) -> int:
        """Return the tokens in the context window. If there were several turns, all of them are counted as input."""
        if self.input_tokens is None:
            return self.tokens_estimated
        return self.account.tokens_after if self.account and self.account.extra_turns else self.input_tokens

    @property
    def percent(self) -> float | None:
        return window_percent(self.tokens, self.max_context)

    @property
    def counted_by(self) -> CountedBy:
        return "estimate" if self.input_tokens is None else "provider"


UNIFIED = "anthropic-ratelimit-unified-"
MAX_WINDOWS = 4


def plan_quota(headers: Iterable[tuple[bytes, bytes]]) -> tuple[QuotaWindow, ...]:
    """Return the windows of a plan that an answer's headers count; nothing for one that is paid by the token."""
    named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    windows = []
    for name, value in named.items():
        window = name.removeprefix(UNIFIED).removesuffix("-utilization")
        used = _number(value)
        if name != f"{UNIFIED}{window}-utilization" or window == "overage" or used is None:
            continue
        windows.append(QuotaWindow(window[:20], min(used, 10.0), _number(named.get(f"{UNIFIED}{window}-reset", ""))))
    return tuple(sorted(windows, key=lambda one: one.name)[:MAX_WINDOWS])


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < MAX_TOKENS else None


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of an answer."""

    status: int
    outcome: str
    reply: ReplyFacts
    first_byte_s: float | None
    elapsed_s: float
    recalled: Recalled = field(default_factory=Recalled)
    events: int = 0  # of a stream, about one for each token
    quota: tuple[QuotaWindow, ...] = ()
    reserved_usd: float = 0.0

    @property
    def counted_usage(self) -> Usage | None:
        """Return the provider's count of all turns, if it is one."""
        usage = self.recalled.all or self.reply.usage
        return usage if usage is not None and usage.input_tokens else None

    @property
    def is_charged(self) -> bool:
        """Return whether the provider charges it: also if the client left before any answer, for it has the request."""
        return self.status == PAID or (self.status == 0 and self.outcome == GONE)

    def with_long_writes(self) -> "Ending":
        """Return it with every write to the prompt cache as one for the longer life, which some APIs do not say."""
        recalled = self.recalled
        reply = replace(self.reply, usage=_as_long(self.reply.usage))
        recalled = replace(recalled, first=_as_long(recalled.first), all=_as_long(recalled.all))
        return replace(self, reply=reply, recalled=recalled)


def _as_long(usage: Usage | None) -> Usage | None:
    return usage and replace(usage, long_write_tokens=usage.cache_write_tokens)


def charged_usd(prices: Prices, usage: Usage | None, ending: Ending) -> float | None:
    """Return the cost of a response; None if nothing was counted or reserved.

    A response that broke off before its final count costs at least the tokens seen so far, and the reservation.
    """
    if usage is not None and (ending.outcome == "ok" or ending.reply.finish):
        return prices.cost_usd(usage)
    if usage is None:
        return ending.reserved_usd or None
    seen = replace(usage, output_tokens=max(usage.output_tokens, ending.events))
    return max(prices.cost_usd(seen), ending.reserved_usd)


def with_ending(metric: Metric, ending: Ending, model: Model | None) -> Metric:
    """Return `metric` with everything known at the end of the response."""
    counted = ending.counted_usage
    prices = prices_of(model)
    return replace(
        metric,
        status=ending.status,
        outcome=ending.outcome,
        finish=ending.reply.finish[:40],
        input_tokens=counted.input_tokens if counted else None,
        cached_tokens=counted.cached_tokens if counted else None,
        output_tokens=counted.output_tokens if counted else None,
        cost_usd=None if prices is None or not ending.is_charged else charged_usd(prices, counted, ending),
        first_token_ms=None if ending.first_byte_s is None else round(ending.first_byte_s * 1000),
        duration_ms=round(ending.elapsed_s * 1000),
        quota=without_absurd_resets(ending.quota, metric.at),
    )


def estimate_usage(sent: Sent, ending: Ending, caches: bool) -> Usage:
    """Estimate the charge for a response without a count; most of these broke off."""
    cached = sent.old_after if caches and not sent.is_rewritten else 0
    return Usage(sent.after, ending.events, min(cached, sent.after))


def window_percent(tokens: int, max_context: int | None) -> float | None:
    """Return the share of the window in per cent; None if no window is known, or a row names one without room."""
    return round(tokens * 100 / max_context, 2) if max_context and max_context > 0 else None


def level(share: float | None) -> Level:
    """Return how near the end of the window is: ok, caution, warning, critical, or unknown."""
    if share is None:
        return "unknown"
    return next((name for bound, name in LEVELS if share >= bound), "ok")


_HINTS: Mapping[Level, str] = {
    "ok": "there is room",
    "caution": "the window fills up",
    "warning": "little room is left",
    "critical": "hardly any room is left",
    "unknown": "name the model in [models] with its max_context_size, and its share of the window is known",
}


def hint(level: Level, session: str) -> str:
    """Return what a person can do about a window of this level: which button, which command."""
    if level in ("ok", "unknown"):
        return _HINTS[level]
    how = 'the red button "Compress now" on the dashboard'
    return f"{_HINTS[level]}: make room with {how}, or with kimi-proxy compress {session}"


def is_worse_level(level: str, than: str) -> bool:
    return _RANKS.get(level, 0) > _RANKS.get(than, 0)


@dataclass(frozen=True, slots=True)
class _WindowLevel:
    name: Level
    counted_by: CountedBy


_NEW = _WindowLevel("ok", "estimate")


class WindowLevels:
    """The known sessions, how full their context windows are, and which have buried instructions.

    They are known by scope and id.
    """

    def __init__(self) -> None:
        self._levels: LruCache[tuple[str, str], _WindowLevel] = LruCache(MAX_SESSIONS)
        self._sunk: LruCache[tuple[str, str], bool] = LruCache(MAX_SESSIONS)

    def __contains__(self, session: tuple[str, str]) -> bool:
        return session in self._levels

    def meet(self, sessions: Iterable[tuple[str, str]]) -> None:
        for session in sessions:
            if session not in self._levels:
                self._levels.put(session, _NEW)

    def sinks(self, metric: Metric, is_sunk: bool) -> bool:
        """Return whether the instructions of a session have just been buried."""
        session = metric.scope, metric.session
        was_sunk = self._sunk.pop(session) is not None
        if is_sunk:
            self._sunk.put(session, True)
        return is_sunk and not was_sunk

    def forget(self, scope: str, session: str | None) -> None:
        """Forget one of them, or all in a scope."""
        for cache in (self._levels, self._sunk):
            if session is None:
                cache.forget_matching(lambda key: key[0] == scope)
            else:
                cache.forget((scope, session))

    def rise(self, metric: Metric) -> AlertLevel | None:
        """Return the level that a request has brought its session to, if it is worse than before."""
        session = metric.scope, metric.session
        before = self._levels.get(session) or _NEW
        now = _WindowLevel(level(metric.percent), metric.counted_by)
        is_worse = is_worse_level(now.name, before.name)
        # Estimates and counts differ: going from one to the other must not look like a way back.
        if is_worse or (now.counted_by, before.counted_by) != ("estimate", "provider"):
            self._levels.put(session, now)
        return next((name for _, name in LEVELS if is_worse and name == now.name), None)


@dataclass(frozen=True, slots=True)
class LogCount:
    source: str  # continue, continue_cli, kimi_code, kimi_log or kimi_context
    tokens: int
    max_context: int | None = None
    conversation: str = ""  # the agent's name for it, if its log contains one


class LogCountFields(TypedDict):
    """The fields of a `log_count`."""

    source: str
    session_id: str | None
    tokens: int
    max_context: int | None
    percent: float | None
    counted_by: Literal["log"]


def is_count(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < MAX_TOKENS


def is_fresh(seen_at: float, now: float) -> bool:
    return 0 <= now - seen_at <= MAX_AGE_S


# Returns an agent's own count of a session, where that is worth more than our newest.
NewerCount: TypeAlias = Callable[[Metric | None, str], LogCount | None]


@dataclass(frozen=True, slots=True)
class Fill:
    tokens: int
    max_context: int | None
    counted_by: Literal[CountedBy, "log"]

    @property
    def percent(self) -> float | None:
        return window_percent(self.tokens, self.max_context)


def fill(newest: Metric | None, logged: LogCount | None) -> Fill:
    """Return how full a window is, by the count of a log if there is one."""
    window = newest.max_context if newest else None
    if logged is not None:
        return Fill(logged.tokens, logged.max_context or window, "log")
    return Fill(newest.tokens, window, newest.counted_by) if newest else Fill(0, None, "estimate")


def no_newer_count(newest: Metric | None, session: str) -> None:
    """Used when no log is watched."""
