"""Sessions and requests as JSON: in answers, events and exports."""

from collections.abc import Iterator
from dataclasses import fields

from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.accounting import Account
from kimi_proxy.features.context import Context, Sink
from kimi_proxy.features.metering import Metric, window_percent
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.store.protocols import MemoryKind, MemoryTotals, SessionRecord, SessionTotals

# What a request saved, and what that cost; null until its answer is over.
ACCOUNT = tuple(field.name for field in fields(Account))

_METRIC = tuple(
    """
    provider model api status outcome finish tokens counted_by tokens_estimated input_tokens cached_tokens
    output_tokens max_context percent cost_usd first_token_ms duration_ms tokens_saved reasons
    """.split()
)


def session(record: SessionRecord) -> JsonObject:
    """Return the fields of a session in their order, times as text."""
    times: JsonObject = {"created": iso_time(record.created), "last_used": iso_time(record.last_used)}
    owner = {name for name in ("person", "team") if not getattr(record, name)} | {"scope"}  # shown in a team only
    shown = ((name, value) for name, value in _fields(record) if name not in owner)
    return {f"{name}_at" if name in times else name: times.get(name, value) for name, value in shown}


def sums(all: SessionTotals) -> JsonObject:
    return dict(_fields(all))


def metric(metric: Metric) -> JsonObject:
    context = metric.context
    return {
        "id": metric.id,
        "session_id": metric.session,
        "at": iso_time(metric.at),
        **{name: getattr(metric, name) for name in _METRIC},
        **{f"{name}_tokens": getattr(context, name, None) for name in ("system", "memory", "tools", "chat")},
        "memory_ratio": context.memory_ratio if context else None,
        **{name: getattr(metric.account, name, None) for name in ACCOUNT},
        "cache_miss": metric.miss.cause if metric.miss else None,
        "cache_missed_tokens": metric.miss.tokens if metric.miss else None,
        "cache_missed_usd": metric.miss.usd if metric.miss else None,
        "cache_life_s": metric.cache_life_s,
        "cache_miss_detail": metric.miss.detail if metric.miss else None,
        "observed_tokens": metric.observed_tokens,
        "observed_usd": metric.observed_usd,
        "quota": _quota(metric),
    }


def _quota(metric: Metric) -> JsonValue:
    """Return how much of a plan was used; None for a request that none paid for."""
    windows: list[JsonValue] = [
        {"window": one.name, "used": one.used, "resets_at": None if one.resets is None else iso_time(one.resets)}
        for one in metric.quota
    ]
    return windows or None


def memory(metric: Metric, context: Context) -> JsonObject:
    return {
        "session_id": metric.session,
        "request_id": metric.id,
        "memory_tokens": context.memory,
        "chat_tokens": context.chat,
        "memory_ratio": context.memory_ratio,
        "composition": context.to_json(),
    }


def memory_sums(all: MemoryTotals) -> JsonObject:
    total = all.system_tokens + all.memory_tokens + all.tools_tokens + all.chat_tokens
    kinds: list[JsonValue] = [dict(_fields(one)) for one in all.kinds]
    return {
        "requests": all.requests,
        "requests_with_memory": all.with_memory,
        "sessions_with_memory": all.sessions,
        "system_tokens": all.system_tokens,
        "memory_tokens": all.memory_tokens,
        "tools_tokens": all.tools_tokens,
        "chat_tokens": all.chat_tokens,
        "memory_ratio": round(all.memory_tokens / total, 4) if total else 0.0,
        "kinds": kinds,
    }


def sink(metric: Metric, found: Sink) -> JsonObject:
    return {
        "session_id": metric.session,
        "request_id": metric.id,
        "system_tokens": found.system_tokens,
        "buried_tokens": found.buried_tokens,
        "distance": found.distance,
        "percent": None if found.distance is None else window_percent(found.distance, metric.max_context),
        "max_context": metric.max_context,
    }


def alert(metric: Metric, level: str) -> JsonObject:
    names = ("percent", "tokens", "max_context", "counted_by")
    return {"session_id": metric.session, "level": level, **{name: getattr(metric, name) for name in names}}


def _fields(record: SessionRecord | SessionTotals | MemoryKind) -> Iterator[tuple[str, JsonValue]]:
    """Return the names and values of a record, money rounded."""
    for field in fields(record):
        value = getattr(record, field.name)
        yield field.name, round(value, 6) if value is not None and field.name.endswith("_usd") else value
