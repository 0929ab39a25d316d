"""Sessions and requests as they are told to others: in answers, events and exports."""

from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.hub import moment
from kimi_proxy.services.store import SessionRecord, Sums


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
        "cost_usd": None if record.cost_usd is None else round(record.cost_usd, 6),
    }


def sums(all: Sums) -> JsonObject:
    return {
        "sessions": all.sessions,
        "requests": all.requests,
        "input_tokens": all.input_tokens,
        "cached_tokens": all.cached_tokens,
        "output_tokens": all.output_tokens,
        "tokens_saved": all.tokens_saved,
        "cost_usd": None if all.cost_usd is None else round(all.cost_usd, 6),
    }


def metric(metric: Metric) -> JsonObject:
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
