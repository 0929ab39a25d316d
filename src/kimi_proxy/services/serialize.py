"""Sessions, requests, savings and compressions as JSON: in answers, events and exports."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Literal, NotRequired, TypedDict, cast

from kimi_proxy.features.accounting import Account, SavingsLine, by_model, by_project, sum_lines
from kimi_proxy.features.chat.context import CompositionBody, Context, Sink
from kimi_proxy.features.metering import AlertLevel, CountedBy, Metric, hint, window_percent
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.store.protocols import (
    CompressionRecord,
    MemoryKind,
    MemoryTotals,
    SessionRecord,
    SessionTotals,
)


class LossesBody(TypedDict, total=False):
    """Tokens that a session cost, by cause."""

    tool: int
    cache: int
    recovered: int
    summaries: int


class SessionBody(TypedDict):
    """A conversation, and the sums of its requests."""

    id: str
    name: str
    title: str
    provider: str
    model: str
    created_at: str
    last_used_at: str
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    tokens_saved: int
    cost_usd: float | None
    cost_before_usd: float | None
    net_saved_tokens: int
    net_saved_usd: float | None
    parent: str
    directory: str
    person: NotRequired[str]  # in a team
    team: NotRequired[str]
    losses: NotRequired[LossesBody]  # in a list, of a session that cost more than it saved


class QuotaBody(TypedDict):
    """The used share of a plan, from 0.0 to 1.0, in a window such as `5h` or `7d`."""

    window: str
    used: float
    resets_at: str | None


class PeriodBody(TypedDict):
    """Savings and their overhead in a period; money is null where no price is known."""

    sessions: int
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
    observed_tokens: int
    cost_before_usd: float | None
    cost_usd: float | None
    net_saved_usd: float | None
    cache_lost_usd: float | None
    overhead_usd: float | None
    cache_missed_usd: float | None
    observed_usd: float | None


class ModelSavings(PeriodBody):
    model: str


class ProjectSavings(PeriodBody):
    directory: str


class AccountBody(TypedDict):
    """The savings of a request and their overhead; null until its answer has ended."""

    tokens_before: int | None
    tokens_after: int | None
    cache_lost_tokens: int | None
    recoveries: int | None
    extra_turns: int | None
    recovery_tokens: int | None
    summaries: int | None
    summary_tokens: int | None
    net_saved_tokens: int | None
    cost_before_usd: float | None
    net_saved_usd: float | None
    cache_lost_usd: float | None
    overhead_usd: float | None


class MetricBody(AccountBody):
    """A request in responses, events and exports; its account is null until the response has ended."""

    id: str
    session_id: str
    at: str
    provider: str
    model: str
    api: str
    status: int
    outcome: str
    finish: str
    tokens: int
    counted_by: CountedBy
    tokens_estimated: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    max_context: int | None
    percent: float | None
    cost_usd: float | None
    first_token_ms: int | None
    duration_ms: int | None
    tokens_saved: int
    reasons: Sequence[str]
    system_tokens: int | None
    memory_tokens: int | None
    tools_tokens: int | None
    chat_tokens: int | None
    memory_ratio: float | None
    cache_miss: str | None
    cache_missed_tokens: int | None
    cache_missed_usd: float | None
    cache_life_s: float | None
    cache_miss_detail: str | None
    observed_tokens: int | None  # would have been saved; null unless it was only observed
    observed_usd: float | None
    quota: list[QuotaBody] | None  # of the plan that paid for it


class MemoryMetricBody(TypedDict):
    session_id: str
    request_id: str
    memory_tokens: int
    chat_tokens: int
    memory_ratio: float
    composition: CompositionBody


class SinkAlertBody(TypedDict):
    session_id: str
    request_id: str
    system_tokens: int
    buried_tokens: int
    distance: int | None
    percent: float | None
    max_context: int | None


class WindowAlertBody(TypedDict):
    session_id: str
    level: AlertLevel
    percent: float | None
    tokens: int
    max_context: int | None
    counted_by: CountedBy
    hint: str


class MemoryStatsBody(TypedDict):
    requests: int
    requests_with_memory: int
    sessions_with_memory: int
    system_tokens: int
    memory_tokens: int
    tools_tokens: int
    chat_tokens: int
    memory_ratio: float
    kinds: Sequence[MemoryKind]


def session(record: SessionRecord) -> SessionBody:
    """Return the fields of a session in their order, times as text."""
    body: SessionBody = {
        "id": record.id,
        "name": record.name,
        "title": record.title,
        "provider": record.provider,
        "model": record.model,
        "created_at": iso_time(record.created),
        "last_used_at": iso_time(record.last_used),
        "requests": record.requests,
        "input_tokens": record.input_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
        "tokens_saved": record.tokens_saved,
        "cost_usd": _usd(record.cost_usd),
        "cost_before_usd": _usd(record.cost_before_usd),
        "net_saved_tokens": record.net_saved_tokens,
        "net_saved_usd": _usd(record.net_saved_usd),
        "parent": record.parent,
        "directory": record.directory,
    }
    if record.person_name:
        body["person"] = record.person_name
    if record.team:
        body["team"] = record.team
    return body


def sums(all: SessionTotals) -> SessionTotals:
    """Return totals with their money rounded."""
    return replace(
        all,
        cost_usd=_usd(all.cost_usd),
        cost_before_usd=_usd(all.cost_before_usd),
        net_saved_usd=_usd(all.net_saved_usd),
    )


def metric(metric: Metric) -> MetricBody:
    context = metric.context
    miss = metric.miss
    return {
        "id": metric.id,
        "session_id": metric.session,
        "at": iso_time(metric.at),
        "provider": metric.provider,
        "model": metric.model,
        "api": metric.api,
        "status": metric.status,
        "outcome": metric.outcome,
        "finish": metric.finish,
        "tokens": metric.tokens,
        "counted_by": metric.counted_by,
        "tokens_estimated": metric.tokens_estimated,
        "input_tokens": metric.input_tokens,
        "cached_tokens": metric.cached_tokens,
        "output_tokens": metric.output_tokens,
        "max_context": metric.max_context,
        "percent": metric.percent,
        "cost_usd": metric.cost_usd,
        "first_token_ms": metric.first_token_ms,
        "duration_ms": metric.duration_ms,
        "tokens_saved": metric.tokens_saved,
        "reasons": metric.reasons,
        "system_tokens": context.system if context else None,
        "memory_tokens": context.memory if context else None,
        "tools_tokens": context.tools if context else None,
        "chat_tokens": context.chat if context else None,
        "memory_ratio": context.memory_ratio if context else None,
        **_account(metric.account),
        "cache_miss": miss.cause if miss else None,
        "cache_missed_tokens": miss.tokens if miss else None,
        "cache_missed_usd": miss.usd if miss else None,
        "cache_life_s": metric.cache_life_s,
        "cache_miss_detail": miss.detail if miss else None,
        "observed_tokens": metric.observed_tokens,
        "observed_usd": metric.observed_usd,
        "quota": _quota(metric),
    }


def _account(account: Account | None) -> AccountBody:
    found = {field.name: getattr(account, field.name) if account else None for field in fields(Account)}
    return cast(AccountBody, found)


def _quota(metric: Metric) -> list[QuotaBody] | None:
    """Return how much of a plan was used; None for a request that none paid for."""
    windows: list[QuotaBody] = [
        {"window": one.name, "used": one.used, "resets_at": None if one.resets is None else iso_time(one.resets)}
        for one in metric.quota
    ]
    return windows or None


def period(lines: Sequence[SavingsLine]) -> PeriodBody:
    """Return the sums of a period, without the reasons of each session."""
    figures = sum_lines(lines).figures()
    return cast(PeriodBody, {"sessions": len({line.session for line in lines}), **figures})


def savings_by_model(lines: Sequence[SavingsLine]) -> list[ModelSavings]:
    return [{"model": line.model, **period([line])} for line in _rank(by_model(lines))]


def savings_by_project(lines: Sequence[SavingsLine]) -> list[ProjectSavings]:
    return [{"directory": line.directory, **period([line])} for line in _rank(by_project(lines))]


def _rank(lines: Sequence[SavingsLine]) -> Sequence[SavingsLine]:
    """Return lines with those that saved most first."""
    return sorted(lines, key=lambda line: (-(line.net_saved_usd or 0.0), -line.net_saved_tokens))


def losses(line: SavingsLine) -> LossesBody:
    """Return the tokens by which a session cost more than it saved, by cause."""
    found: LossesBody = {}
    if line.tokens_after > line.tokens_before:
        found["tool"] = line.tokens_after - line.tokens_before
    if line.cache_lost_tokens > 0:
        found["cache"] = line.cache_lost_tokens
    if line.recovery_tokens > 0:
        found["recovered"] = line.recovery_tokens
    if line.summary_tokens > 0:
        found["summaries"] = line.summary_tokens
    return found


def memory(metric: Metric, context: Context) -> MemoryMetricBody:
    return {
        "session_id": metric.session,
        "request_id": metric.id,
        "memory_tokens": context.memory,
        "chat_tokens": context.chat,
        "memory_ratio": context.memory_ratio,
        "composition": context.to_json(),
    }


def memory_sums(all: MemoryTotals) -> MemoryStatsBody:
    total = all.system_tokens + all.memory_tokens + all.tools_tokens + all.chat_tokens
    return {
        "requests": all.requests,
        "requests_with_memory": all.with_memory,
        "sessions_with_memory": all.sessions,
        "system_tokens": all.system_tokens,
        "memory_tokens": all.memory_tokens,
        "tools_tokens": all.tools_tokens,
        "chat_tokens": all.chat_tokens,
        "memory_ratio": round(all.memory_tokens / total, 4) if total else 0.0,
        "kinds": all.kinds,
    }


def sink(metric: Metric, found: Sink) -> SinkAlertBody:
    return {
        "session_id": metric.session,
        "request_id": metric.id,
        "system_tokens": found.system_tokens,
        "buried_tokens": found.buried_tokens,
        "distance": found.distance,
        "percent": None if found.distance is None else window_percent(found.distance, metric.max_context),
        "max_context": metric.max_context,
    }


def alert(metric: Metric, level: AlertLevel) -> WindowAlertBody:
    return {
        "session_id": metric.session,
        "level": level,
        "percent": metric.percent,
        "tokens": metric.tokens,
        "max_context": metric.max_context,
        "counted_by": metric.counted_by,
        "hint": hint(level, metric.session),
    }


def _usd(value: float | None) -> float | None:
    """Return money rounded, so that sums of it look as they were meant."""
    return None if value is None else round(value, 6)


class SavingBody(TypedDict):
    original_tokens: int
    compressed_tokens: int
    tokens_saved: int
    compression_ratio: float


class CompressionFields(SavingBody):
    compression_id: str
    session_id: str
    at: float
    kind: str
    automatic: bool
    summary_by: str
    original_id: str | None  # a simulation stores nothing
    undone: bool


class CompressedBody(CompressionFields):
    summary: str
    messages_removed: int
    messages_kept: int
    summary_input_tokens: NotRequired[int]
    summary_output_tokens: NotRequired[int]
    simulated: NotRequired[bool]


class PastCompressionBody(CompressionFields):
    undone_at: float | None
    messages_removed: int
    summary: str


class UndoneBody(TypedDict):
    session_id: str
    undone: str
    active: str | None


class UndoneFields(UndoneBody):
    """The fields of a `compression_event` for an undone compression."""

    event: Literal["undone"]


class CompressionEventFields(SavingBody):
    """The fields of a `compression_event`: figures, and nothing that anyone wrote. Events have a time of their own."""

    compression_id: str
    session_id: str
    kind: str
    automatic: bool
    summary_by: str
    original_id: str
    undone: bool
    messages_removed: int
    messages_kept: int
    summary_input_tokens: int
    summary_output_tokens: int


class CompressionTotalsBody(SavingBody):
    compressions: int
    undone: int


class CompressionStatsBody(CompressionTotalsBody):
    threshold: float


class SessionCompressionStatsBody(CompressionStatsBody):
    session_id: str
    active: str | None
    history: list[PastCompressionBody]


def past_compression(made: CompressionRecord) -> PastCompressionBody:
    removed = made.cut - len(made.kept)
    return {**compression(made), "undone_at": made.undone, "messages_removed": removed, "summary": made.summary}


def compression(made: CompressionRecord) -> CompressionFields:
    return {
        "compression_id": made.id,
        "session_id": made.session,
        "at": made.at,
        "kind": made.kind,
        "automatic": made.is_automatic,
        **saving(made.original_tokens, made.compressed_tokens),
        "summary_by": made.summary_by,
        "original_id": made.original,
        "undone": made.undone is not None,
    }


def saving(before: int, after: int) -> SavingBody:
    return {
        "original_tokens": before,
        "compressed_tokens": after,
        "tokens_saved": before - after,
        "compression_ratio": round((before - after) / before, 4) if before else 0.0,
    }
