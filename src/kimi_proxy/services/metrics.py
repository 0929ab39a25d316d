"""Prometheus metrics of one runtime."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TOOL_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

# A creation time for every counter would double the size of each scrape.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of one runtime; there are no process-wide ones."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._add_pruner()
        self._add_gateway()
        self._add_chat()
        self._add_sanitizer()
        self._add_hooks()
        self._add_server()

    def text(self) -> bytes:
        """Return all counters in Prometheus' text format."""
        return generate_latest(self.registry)

    def count_fault(self, stage: str, error: Exception) -> None:
        """Count a fault of ours that a chat request survived."""
        self.chat_faults.labels(stage, type(error).__name__).inc()

    def count_chat(self, provider: str, outcome: str, status: int, seconds: float, first_byte_s: float | None) -> None:
        """Count what became of a chat request, and how long it took."""
        self.chat_requests.labels(provider, outcome, status).inc()
        self.chat_seconds.labels(provider).observe(seconds)
        if first_byte_s is not None:
            self.chat_first_byte_seconds.labels(provider).observe(first_byte_s)

    def count_chat_tokens(self, provider: str, tokens: dict[str, int]) -> None:
        """Add the provider's own count of a request, by kind: input, cached, output."""
        for kind, amount in tokens.items():
            self.chat_tokens.labels(provider, kind).inc(amount)

    def count_budget(self, budget: str, outcome: str) -> None:
        self.budget_requests.labels(budget, outcome).inc()

    def count_tool_call(self, tool: str, outcome: str, seconds: float) -> None:
        self.tool_calls.labels(tool, outcome).inc()
        self.tool_seconds.labels(tool).observe(seconds)

    def _add_pruner(self) -> None:
        self.prunes = self._counter(
            "prunes",
            "Texts processed, by outcome: pruned, untouched or fallback.",
            ("source_type", "backend", "outcome"),
        )
        self.warnings = self._counter("prune_warnings", "Warning codes given with answers.", ("code",))
        self.faults = self._counter(
            "prune_faults", "Internal errors handled during a prune, by step.", ("step", "code")
        )
        self.tokens_before = self._counter("prune_tokens_before", "Tokens of the texts as received.")
        self.tokens_after = self._counter("prune_tokens_after", "Tokens of the texts as returned, markers included.")
        self.prune_seconds = self._histogram("prune_seconds", "Duration of a prune.", _SECONDS)
        self.recoveries = self._counter(
            "recoveries", "Requests for original lines: ok, or the code of the error.", ("outcome",)
        )

    def _add_gateway(self) -> None:
        self.gateway_calls = self._counter(
            "gateway_calls",
            "Messages passed to MCP servers: ok, or the code of the error.",
            ("server", "outcome"),
        )
        self.gateway_masked = self._counter(
            "gateway_masked",
            "Texts in answers of MCP servers that were masked, or left uncut, with the reason.",
            ("server", "outcome"),
        )

    def _add_chat(self) -> None:
        self.chat_requests = self._counter(
            "chat_requests",
            "Chat requests by outcome (ok, client_gone or an error code) and the provider's status.",
            ("provider", "outcome", "status"),
        )
        self.chat_seconds = self._histogram(
            "chat_seconds", "Time from a chat request to the last byte of its response.", _LONG_SECONDS, ("provider",)
        )
        self.chat_first_byte_seconds = self._histogram(
            "chat_first_byte_seconds",
            "Time from a chat request to the first byte of its response body.",
            _LONG_SECONDS,
            ("provider",),
        )
        self.chat_added_seconds = self._histogram(
            "chat_added_seconds", "Time added before a chat request is sent to its provider.", _SECONDS
        )
        self.streams_in_flight = self._gauge(
            "streams_in_flight", "Requests to providers whose responses have not ended."
        )
        self.prompt_cache_requests = self._counter(
            "prompt_cache_requests",
            "Chat requests for which the provider's prompt cache had something (hit), or nothing (miss).",
            ("provider", "outcome"),
        )
        self.budget_requests = self._counter(
            "budget_requests",
            "Requests by the budgets that count them: admitted, near the limit, refused, or not counted.",
            ("budget", "outcome"),
        )
        self.chat_tokens = self._counter(
            "chat_tokens", "Tokens as the providers count them; input includes cached.", ("provider", "kind")
        )
        self.net_saved_tokens = self._gauge(
            "net_saved_tokens",
            "Tokens saved since the start after lost cache reads, recoveries and summaries; it may fall.",
            ("provider",),
        )
        self.cache_missed_tokens = self._counter(
            "cache_missed_tokens", "Tokens lost from the prompt cache, by cause.", ("provider", "cause")
        )
        self.chat_faults = self._counter(
            "chat_faults", "Internal errors handled during a chat request, by stage.", ("stage", "code")
        )
        self.journal_dropped = self._counter(
            "journal_dropped",
            "Chat requests that were not recorded, by reason: busy, disk, fault, stopped.",
            ("reason",),
        )
        self.viewers_evicted = self._counter("viewers_evicted", "Viewers of /ws that read too slowly.")

    def _add_sanitizer(self) -> None:
        self.sanitizer_outputs = self._counter(
            "sanitizer_outputs",
            "Long tool results in chat requests, by action taken or the reason for none.",
            ("why",),
        )
        self.sanitizer_tokens_saved = self._counter(
            "sanitizer_tokens_saved",
            "Tokens removed from requests by cutting tool results, counted in every request.",
        )

    def _add_hooks(self) -> None:
        self.hook_outputs = self._counter(
            "hook_outputs", "Tool outputs received from hooks: cut, or the reason why not.", ("why",)
        )
        self.hook_tokens_saved = self._counter("hook_tokens_saved", "Tokens removed by hooks.")

    def _add_server(self) -> None:
        self.http_refusals = self._counter("http_refusals", "Requests rejected by the guard, by reason.", ("code",))
        self.tool_calls = self._counter("tool_calls", "Tool calls: ok, or the code of the error.", ("tool", "outcome"))
        self.tool_seconds = self._histogram("tool_seconds", "Duration of tool calls.", _TOOL_SECONDS, ("tool",))
        self.store_originals = self._gauge("store_originals", "Originals stored.")
        self.store_bytes = self._gauge("store_bytes", "Disk space used by the store.")
        self.store_pool_size = self._gauge("store_pool_size", "Connections to the database that are open.")
        self.store_pool_idle = self._gauge("store_pool_idle", "Of these, connections that nothing uses now.")
        self.store_pool_waiting = self._gauge("store_pool_waiting", "Calls that wait for a connection.")
        self.store_degraded = self._gauge("store_degraded", "1 while nothing can be kept.")

    def _counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"kimi_proxy_{name}", help, labels, registry=self.registry)

    def _gauge(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(f"kimi_proxy_{name}", help, labels, registry=self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(f"kimi_proxy_{name}", help, labels, buckets=buckets, registry=self.registry)
