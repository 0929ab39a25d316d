"""Sessions and requests as they are told to others: in answers, events and exports."""

from dataclasses import fields

from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.accounting import Account
from kimi_proxy.features.context import Context, Sink
from kimi_proxy.features.metering import Metric, window_percent
from kimi_proxy.services.events import moment
from kimi_proxy.services.store import MemoryTotals, SessionRecord, SessionTotals

# What a request saved, and what that cost; null until its answer is over.
ACCOUNT = tuple(field.name for field in fields(Account))


def session(record: SessionRecord) -> JsonObject:
    return {
        "id": record.id,
        "name": record.name,
        "title": record.title,
        "provider": record.provider,
        "model": record.model,
        "created_at": moment(record.created),
        "last_used_at": moment(record.last_used),
        "requests": record.requests,
        "input_tokens": record.input_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
        "tokens_saved": record.tokens_saved,
        "cost_usd": _usd(record.cost_usd),
        "cost_before_usd": _usd(record.cost_before_usd),
        "net_saved_tokens": record.net_saved_tokens,
        "net_saved_usd": _usd(record.net_saved_usd),
    }


def sums(all: SessionTotals) -> JsonObject:
    return {
        "sessions": all.sessions,
        "requests": all.requests,
        "input_tokens": all.input_tokens,
        "cached_tokens": all.cached_tokens,
        "output_tokens": all.output_tokens,
        "tokens_saved": all.tokens_saved,
        "cost_usd": _usd(all.cost_usd),
        "cost_before_usd": _usd(all.cost_before_usd),
        "net_saved_tokens": all.net_saved_tokens,
        "net_saved_usd": _usd(all.net_saved_usd),
    }


def metric(metric: Metric) -> JsonObject:
    context = metric.context
    return {
        "id": metric.id,
        "session_id": metric.session,
        "at": moment(metric.at),
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
        **{name: getattr(metric.account, name, None) for name in ACCOUNT},
    }


def _usd(sum: float | None) -> float | None:
    return None if sum is None else round(sum, 6)


def memory(metric: Metric, context: Context) -> JsonObject:
    return {
        "session_id": metric.session,
        "request_id": metric.id,
        "memory_tokens": context.memory,
        "chat_tokens": context.chat,
        "memory_ratio": context.memory_ratio,
        "composition": composition(context),
    }


def composition(context: Context) -> JsonObject:
    return {"system": context.system, "memory": context.memory, "tools": context.tools, "chat": context.chat}


def memory_sums(all: MemoryTotals) -> JsonObject:
    total = all.system_tokens + all.memory_tokens + all.tools_tokens + all.chat_tokens
    kinds: list[JsonValue] = [
        {"kind": one.kind, "sessions": one.sessions, "segments": one.segments, "tokens": one.tokens}
        for one in all.kinds
    ]
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
    return {
        "session_id": metric.session,
        "level": level,
        "percent": metric.percent,
        "tokens": metric.tokens,
        "max_context": metric.max_context,
        "counted_by": metric.counted_by,
    }
