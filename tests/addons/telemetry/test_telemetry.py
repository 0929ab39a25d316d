"""Chat requests as an OpenTelemetry collector gets them, read by the protocol's own messages."""

import gzip
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from google.protobuf.message import Message
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes
from tests.support.api.proxy_world import proxy
from tests.support.api.watching import MODEL, completion, models, world
from tests.support.evil import answering, evil, http

from kimi_proxy.addons.telemetry import telemetry

TEXT = "why does the parser fail on line 7?"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Collector:
    """What was exported, as the protocol's messages; a body that is none of them fails the test."""

    url: str = ""
    taken: list[tuple[str, Message]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        requests = [message for _, message in self.taken if isinstance(message, ExportTraceServiceRequest)]
        return [
            span
            for each in requests
            for group in each.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]

    @property
    def requests(self) -> list[Span]:
        return [span for span in self.spans if span.name.startswith("chat ")]

    @property
    def metrics(self) -> dict[str, object]:
        requests = [message for _, message in self.taken if isinstance(message, ExportMetricsServiceRequest)]
        return {
            metric.name: metric
            for each in requests
            for group in each.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
        }


MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body
            assert self.headers["content-type"] == "application/x-protobuf"
            collector.taken.append((self.path, MESSAGES[self.path].FromString(body)))
            collector.headers.append(str(self.headers))
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


def wanted(collector: Collector, more: str = "") -> str:
    return f'{models()}\n[telemetry]\notlp_endpoint = "{collector.url}/"\n{more}'


def read(attributes: Iterable[KeyValue]) -> dict[str, object]:
    found: dict[str, object] = {}
    for pair in attributes:
        kind = pair.value.WhichOneof("value")
        assert kind is not None
        value = getattr(pair.value, kind)
        found[pair.key] = [each.string_value for each in value.values] if kind == "array_value" else value
    return found


async def test_a_request_is_a_span_in_the_words_of_the_conventions_and_holds_no_text(tmp_path: Path):
    with collecting() as collector:
        async with world(tmp_path, wanted(collector)) as w:
            body = {"model": MODEL, "messages": [{"role": "user", "content": TEXT}]}
            headers = {"traceparent": TRACEPARENT, "x-session-id": "mine"}
            answer = await w.proxy.http.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200
            port = w.provider.port

    (span,) = collector.requests
    assert (span.name, span.kind) == ("chat m", Span.SPAN_KIND_CLIENT)
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == tuple(TRACEPARENT.split("-")[1:3])
    assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    attributes = read(span.attributes)
    assert attributes.pop(telemetry.CONVERSATION)
    assert attributes == {
        telemetry.OPERATION: "chat",
        telemetry.PROVIDER: "openai-evil",
        telemetry.REQUEST_MODEL: "m",
        telemetry.RESPONSE_MODEL: "m",
        telemetry.ADDRESS: "127.0.0.1",
        telemetry.PORT: port,
        telemetry.STREAM: False,
        telemetry.STATUS: 200,
        telemetry.FINISH: ["stop"],
        telemetry.INPUT_TOKENS: 900,
        telemetry.OUTPUT_TOKENS: 7,
        telemetry.CACHE_READ: 100,
        telemetry.CACHE_WRITE: 0,
    }
    assert TEXT not in str(collector.taken)

    assert set(collector.metrics) == {telemetry.DURATION, telemetry.TOKEN_USAGE}
    points = collector.metrics[telemetry.TOKEN_USAGE].histogram.data_points
    assert {read(point.attributes)[telemetry.TOKEN_TYPE]: point.sum for point in points} == {"input": 900, "output": 7}


async def test_parts_of_a_request_are_spans_below_it_and_it_is_the_parent_of_the_providers(tmp_path: Path):
    long = "\n".join(f"INFO step {n} took {n} ms" for n in range(3000)) + "\nERROR zebra failed\n"
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "why does the zebra fail?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": long},
    ]
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    with collecting() as collector:
        async with world(tmp_path, wanted(collector) + "[sanitizer]\nbudget_ms = 60000\n") as w:
            body = {"model": MODEL, "messages": messages, "tools": tools}
            answer = await w.proxy.http.post(
                "/v1/chat/completions", json=body, headers={"traceparent": TRACEPARENT}, timeout=60
            )
            assert answer.status_code == 200
            sent = dict(w.provider.heard[-1].headers)

    (span,) = collector.requests
    parts = [part for part in collector.spans if part is not span]
    assert {part.name for part in parts} >= {f"kimi_proxy {name}" for name in ("store", "scoring", "upstream")}
    assert {part.parent_span_id for part in parts} == {span.span_id}
    assert {part.trace_id for part in parts} == {span.trace_id}
    for part in parts:
        assert span.start_time_unix_nano <= part.start_time_unix_nano <= part.end_time_unix_nano
    attributes = read(span.attributes)
    assert attributes["kimi_proxy.tokens_saved"] > 1000
    assert "pruned" in attributes["kimi_proxy.reasons"]
    trace, parent = sent["traceparent"].split("-")[1:3]
    assert (trace, parent) == (span.trace_id.hex(), span.span_id.hex())


async def test_texts_are_sent_where_the_settings_ask_for_them(tmp_path: Path):
    with collecting() as collector:
        async with world(tmp_path, wanted(collector, "content = true")) as w:
            await w.ask(TEXT)

    (span,) = collector.requests
    expected = f'[{{"role":"user","parts":[{{"type":"text","content":"{TEXT}"}}]}}]'
    assert read(span.attributes)[telemetry.INPUT_MESSAGES] == expected


async def test_an_error_of_the_provider_is_the_spans_too(tmp_path: Path):
    with collecting() as collector:
        script = answering(http(b'{"error":{"message":"no"}}', "429 Too Many Requests"))
        async with evil(script) as provider, proxy(tmp_path, provider.toml() + wanted(collector)) as p:
            body = {"model": MODEL, "messages": [{"role": "user", "content": TEXT}]}
            assert (await p.http.post("/v1/chat/completions", json=body)).status_code == 429

    (span,) = collector.requests
    assert span.status.code == 2
    assert read(span.attributes)[telemetry.ERROR] == "429"


async def test_a_collector_that_refuses_or_is_gone_costs_requests_nothing(tmp_path: Path):
    with collecting(status=400) as collector:
        async with world(tmp_path / "refusing", wanted(collector)) as w:
            await w.ask(TEXT)
    async with world(tmp_path / "gone", wanted(collector)) as w:  # its port is closed now
        await w.ask(TEXT)


async def test_without_an_endpoint_nothing_is_loaded_or_sent(tmp_path: Path):
    async with world(tmp_path, answer=completion()) as w:
        await w.ask(TEXT)
        assert w.provider.heard


CONVENTIONS = (gen_ai_attributes, gen_ai_metrics, error_attributes, http_attributes, server_attributes)


@pytest.mark.parametrize("module", CONVENTIONS)
def test_every_name_is_one_of_the_conventions(module: object):
    ours = {name for each, name in vars(telemetry).items() if each.isupper() and isinstance(name, str) and "." in name}
    theirs = {name for each in CONVENTIONS for name in vars(each).values() if isinstance(name, str)}

    assert ours and ours <= theirs
    assert ours & {name for name in vars(module).values() if isinstance(name, str)}
