"""Spans and metrics of chat requests for an OpenTelemetry collector; off unless the settings contain one.

Names are those of the GenAI semantic conventions in opentelemetry-semantic-conventions 0.66b2; a test compares them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kimi_proxy import __version__
from kimi_proxy.core import json
from kimi_proxy.core.addresses import hide_secrets, secrets_in
from kimi_proxy.core.errors import ConfigError, location
from kimi_proxy.features.chat.prompt_cache import explain_miss
from kimi_proxy.services.chat.observers import ChatObserver

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span
    from opentelemetry.util.types import AttributeValue

    from kimi_proxy.addons.telemetry.settings import TelemetrySettings
    from kimi_proxy.core.chat.request import Request
    from kimi_proxy.core.config.providers import Provider
    from kimi_proxy.core.json import JsonValue
    from kimi_proxy.features.chat.pipeline import Draft
    from kimi_proxy.proxy.headers import Header
    from kimi_proxy.services.chat.relay import Exchange

OPERATION, PROVIDER = "gen_ai.operation.name", "gen_ai.provider.name"
REQUEST_MODEL, RESPONSE_MODEL = "gen_ai.request.model", "gen_ai.response.model"
STREAM, CONVERSATION = "gen_ai.request.stream", "gen_ai.conversation.id"
FINISH, RESPONSE_ID = "gen_ai.response.finish_reasons", "gen_ai.response.id"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS, OUTPUT_TOKENS = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHE_READ, CACHE_WRITE = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_creation.input_tokens"
REASONING = "gen_ai.usage.reasoning.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 - the name of an attribute
ERROR, STATUS, ADDRESS, PORT = "error.type", "http.response.status_code", "server.address", "server.port"
DURATION, TOKEN_USAGE = "gen_ai.client.operation.duration", "gen_ai.client.token.usage"

# The conventions' own words for providers that they list; others are called as the settings call them.
CONVENTIONAL = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai", "chatgpt": "openai"}

TRACE = (b"traceparent", b"tracestate")  # headers of a client whose own span ours belongs to
MAX_CONTENT_CHARS = 65_536
CLOSE_S = 2.0

log = logging.getLogger(__name__)


class Telemetry(ChatObserver):
    """Passes a span and two measurements of every chat request to the SDK, which sends them from its own threads."""

    def __init__(
        self, settings: TelemetrySettings, providers: Mapping[str, Provider], now_ns: Callable[[], int] = time.time_ns
    ) -> None:
        """Raise ConfigError if the packages of OpenTelemetry are not there."""
        self._content = settings.content
        self._providers = providers
        self._now_ns = now_ns
        self._spans: dict[str, Span] = {}  # begun, by the id of the request
        try:
            self._trace = import_module("opentelemetry.trace")
            self._propagation = import_module("opentelemetry.trace.propagation.tracecontext")
            spans, meters = _providers(settings)
        except ImportError as e:
            missing = f"telemetry.otlp_endpoint is set, and {e.name} is not installed"
            raise ConfigError(f"{missing}: pip install 'kimi-proxy[otel]'") from e
        self._tracer = spans.get_tracer("kimi_proxy", __version__)
        meter = meters.get_meter("kimi_proxy", __version__)
        self._duration = meter.create_histogram(DURATION, "s", "Time of a request to a model, as the proxy sees it.")
        self._tokens = meter.create_histogram(TOKEN_USAGE, "{token}", "Tokens of a request, by the provider's count.")
        self._close: tuple[Callable[[], object], ...] = (spans.shutdown, meters.shutdown)

    wants_timings = True

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        """Begin the span, whose parent is the client's, and which is the parent of the provider's."""
        began = outgoing.timings.began_ns if outgoing.timings else self._now_ns()
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in outgoing.headers if name in TRACE}
        parent = self._propagation.TraceContextTextMapPropagator().extract(carrier)
        name = f"chat {outgoing.target.model}"
        kind = self._trace.SpanKind.CLIENT
        self._spans[outgoing.id] = self._tracer.start_span(name, context=parent, kind=kind, start_time=began)

    def headers_for(self, outgoing: Draft) -> tuple[Header, ...]:
        span = self._spans.get(outgoing.id)
        if span is None:
            return ()
        carrier: dict[str, str] = {}
        inside = self._trace.set_span_in_context(span)
        self._propagation.TraceContextTextMapPropagator().inject(carrier, inside)
        return tuple((name.encode(), value.encode("latin-1")) for name, value in carrier.items())

    def on_end(self, exchange: Exchange) -> None:
        span = self._spans.pop(exchange.draft.id, None)
        if span is None:
            return
        try:
            self._report(exchange, span)
        except Exception as e:  # noqa: BLE001 - whatever a collector's SDK does, the answer is the client's
            log.warning("a span was not sent to the collector", extra={"what": location(e)})

    async def close(self) -> None:
        """Send what waits, for as long as a stop may take."""
        closing = [asyncio.to_thread(close) for close in self._close]
        try:
            await asyncio.wait_for(asyncio.gather(*closing, return_exceptions=True), CLOSE_S)
        except TimeoutError:
            log.warning("the collector did not accept the last spans in time")

    def _report(self, exchange: Exchange, span: Span) -> None:
        common = self._common(exchange)
        failed = exchange.outcome != "ok" or exchange.status >= 400
        if failed:
            common[ERROR] = str(exchange.status) if exchange.outcome == "ok" else exchange.outcome
        span.set_attributes(common | self._details(exchange))
        inside = self._trace.set_span_in_context(span)
        for part in exchange.draft.timings.parts if exchange.draft.timings else ():
            # The span covers our part; the provider reports its own spans.
            one = self._tracer.start_span(f"kimi_proxy {part.name}", context=inside, start_time=part.began_ns)
            one.end(part.ended_ns)
        if failed:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(self._now_ns())
        self._duration.record(exchange.elapsed_s, common)
        if usage := exchange.usage:
            self._tokens.record(usage.input_tokens, common | {TOKEN_TYPE: "input"})
            self._tokens.record(usage.output_tokens, common | {TOKEN_TYPE: "output"})

    def _common(self, exchange: Exchange) -> dict[str, AttributeValue]:
        """Return what both a span and a measurement are known by: few values each, so that series stay few."""
        target = exchange.draft.target
        provider = self._providers.get(target.provider)
        url = urlsplit(provider.base_url.get_secret_value()) if provider else None
        found: dict[str, AttributeValue | None] = {
            OPERATION: "chat",
            PROVIDER: CONVENTIONAL.get(target.provider, target.provider),
            REQUEST_MODEL: target.model,
            RESPONSE_MODEL: exchange.reply.model or None,
            ADDRESS: url.hostname if url else None,
            PORT: (url.port or {"https": 443, "http": 80}.get(url.scheme)) if url else None,
        }
        return _drop_unknown(found)

    def _details(self, exchange: Exchange) -> dict[str, AttributeValue]:
        draft = exchange.draft
        reply = exchange.reply
        usage = exchange.usage
        found: dict[str, AttributeValue | None] = {
            CONVERSATION: draft.session.id or None,
            STREAM: draft.request.is_stream,
            STATUS: exchange.status or None,
            FINISH: (reply.finish,) if reply.finish else None,
            RESPONSE_ID: reply.response_id or None,
            FIRST_CHUNK: exchange.first_byte_s if draft.request.is_stream else None,
            INPUT_MESSAGES: _content(draft.request) if self._content else None,
        }
        if usage is not None:
            found |= {INPUT_TOKENS: usage.input_tokens, OUTPUT_TOKENS: usage.output_tokens}
            found |= {CACHE_READ: usage.cached_tokens, CACHE_WRITE: usage.cache_write_tokens}
            found |= {REASONING: usage.reasoning_tokens or None}
            # The conventions have no name for it.
            found |= {"kimi_proxy.cache_miss.cause": _miss_cause(exchange)}
        found |= _saving(draft)
        return _drop_unknown(found)


def _providers(settings: TelemetrySettings) -> tuple[TracerProvider, MeterProvider]:
    """Return what makes spans and metrics and sends them to the collector. Credentials come from OTEL_… variables."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    base = settings.otlp_endpoint.get_secret_value().rstrip("/")
    for exporter in ("trace_exporter", "metric_exporter"):
        logging.getLogger(f"opentelemetry.exporter.otlp.proto.http.{exporter}").addFilter(_HideAddress(base))
    resource = Resource.create({"service.name": settings.service_name, "service.version": __version__})
    spans = TracerProvider(resource=resource, shutdown_on_exit=False)
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{base}/v1/traces")))
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(f"{base}/v1/metrics"), export_interval_millis=settings.interval_s * 1000
    )
    return spans, MeterProvider((reader,), resource, shutdown_on_exit=False)


class _HideAddress(logging.Filter):
    """Takes the path and the query of the collector's address, which may hold a key, out of the exporters' warnings."""

    def __init__(self, address: str) -> None:
        super().__init__()
        parts = urlsplit(address)
        self._secrets = (*secrets_in(address), parts.path, parts.query)

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = hide_secrets(record.getMessage(), self._secrets)
        record.args, record.exc_info = None, None
        return True


def _miss_cause(exchange: Exchange) -> str | None:
    """Return why the prompt cache was missed; None if it was not."""
    draft = exchange.draft
    usage = exchange.recalled.first or exchange.usage
    if draft.cache is None or usage is None:
        return None
    is_ours = any(note.fields.get("prefix_tokens_resent") for note in draft.notes)
    counts = usage.input_tokens, usage.cached_tokens
    miss = explain_miss(draft.cache, *counts, is_ours, exchange.reply.miss_reason)
    return miss.cause if miss else None


def _saving(draft: Draft) -> dict[str, AttributeValue | None]:
    """Return the tokens that were cut, why results were cut or not, and why stages did nothing."""
    saved = 0
    why = list[str]()
    for note in draft.notes:
        tokens = note.fields.get("tokens_saved")
        reasons = note.fields.get("why")
        saved += tokens if isinstance(tokens, int) else 0
        why += map(str, reasons) if isinstance(reasons, Mapping) else ()
    reasons = tuple(dict.fromkeys([*why, *draft.reasons]))
    return {"kimi_proxy.tokens_saved": saved or None, "kimi_proxy.reasons": reasons or None}


def _drop_unknown(found: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in found.items() if value is not None}


def _content(request: Request) -> str:
    """Return the newest messages of a request in the conventions' shape, as many as have room."""
    kept: list[JsonValue] = []
    room = MAX_CONTENT_CHARS
    for message in reversed(request.messages):
        text = "\n".join(part.text for part in message.parts if part.text)
        room -= len(text)
        if room < 0:
            break
        kept.append({"role": message.role, "parts": [{"type": "text", "content": text}]})
    return json.encode(kept[::-1]).decode()
