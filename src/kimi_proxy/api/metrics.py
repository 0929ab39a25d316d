"""What passes through the doors, counted for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from kimi_proxy.api.guard import Refusal

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Traffic:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._refusals = Counter(
            "kimi_proxy_http_refusals", "Requests that the guard turned away, by reason.", ["code"], registry=registry
        )
        self._calls = Counter(
            "kimi_proxy_tool_calls", "Tool calls: ok, or the code of the error.", ["tool", "outcome"], registry=registry
        )
        self._seconds = Histogram(
            "kimi_proxy_tool_seconds", "Time that tool calls took.", ["tool"], buckets=_SECONDS, registry=registry
        )

    def refused(self, refusal: Refusal) -> None:
        self._refusals.labels(refusal.code).inc()

    def called(self, tool: str, outcome: str, seconds: float) -> None:
        self._calls.labels(tool, outcome).inc()
        self._seconds.labels(tool).observe(seconds)
