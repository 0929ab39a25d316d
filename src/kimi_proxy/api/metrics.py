"""`GET /metrics` of the pruner, for Prometheus: tool calls, refusals, and how full the store is."""

from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api.answers import DescribedRoute, RouteSpec
from kimi_proxy.api.guard import Refusal
from kimi_proxy.services.metrics import Counter, Gauge, Histogram, MetricRegistry
from kimi_proxy.services.runtime import Runtime
from kimi_proxy.services.store.protocols import StoreUsage

TEXT = "text/plain; version=0.0.4"

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Traffic:
    def __init__(self, registry: MetricRegistry) -> None:
        name, about = "kimi_proxy_http_refusals", "Requests that the guard turned away, by reason."
        self._refusals = Counter(name, about, ["code"], registry)
        name, about = "kimi_proxy_tool_calls", "Tool calls: ok, or the code of the error."
        self._calls = Counter(name, about, ["tool", "outcome"], registry)
        name, about = "kimi_proxy_tool_seconds", "Time that tool calls took."
        self._seconds = Histogram(name, about, ["tool"], _SECONDS, registry)

    def refused(self, refusal: Refusal) -> None:
        self._refusals.labels(refusal.code).inc()

    def called(self, tool: str, outcome: str, seconds: float) -> None:
        self._calls.labels(tool, outcome).inc()
        self._seconds.labels(tool).observe(seconds)


class StoreGauges:
    def __init__(self, registry: MetricRegistry) -> None:
        self._originals = Gauge("kimi_proxy_store_originals", "Originals kept.", (), registry)
        self._bytes = Gauge("kimi_proxy_store_bytes", "Room that the store takes on disk.", (), registry)
        self._degraded = Gauge("kimi_proxy_store_degraded", "1 while nothing can be kept.", (), registry)

    def set(self, usage: StoreUsage) -> None:
        self._originals.set(usage.originals)
        self._bytes.set(usage.bytes_on_disk)
        self._degraded.set(usage.state != "ok")


SPEC = RouteSpec("Show counters and histograms for Prometheus", media_type="text/plain")


def route(runtime: Runtime) -> DescribedRoute:
    gauges = StoreGauges(runtime.metrics.registry)

    async def metrics(request: Request) -> Response:
        gauges.set(await runtime.store.usage())
        return Response(runtime.metrics.text(), media_type=TEXT)

    return DescribedRoute("GET", "/metrics", metrics, SPEC)
