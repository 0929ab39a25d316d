"""Counters for Prometheus; one registry per runtime, none for the process."""

from kimi_proxy.core.metrics import Counter, Gauge, Histogram, IncreasingValue, MetricRegistry

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = MetricRegistry()
        self._providers: dict[str, ProviderMetrics] = {}
        self._of_the_pruner()
        self._of_the_gateway()
        self._of_chat()
        self._of_the_sanitizer()
        self._of_hooks()

    def text(self) -> bytes:
        """Return all counters in Prometheus' text format."""
        return self.registry.text()

    def count_fault(self, stage: str, error: Exception) -> None:
        """Count a fault of ours that a chat request survived."""
        self.chat_faults.labels(stage, type(error).__name__).inc()

    def count_chat(self, provider: str, outcome: str, status: int) -> "ProviderMetrics":
        """Count what became of a chat request; return the other metrics of its provider, which the settings name."""
        self.chat_requests.labels(provider, outcome, str(status)).inc()
        known = self._providers.get(provider)
        if known is None:
            known = self._providers[provider] = ProviderMetrics(self, provider)
        return known

    def _of_the_pruner(self) -> None:
        self.prunes = self._counter(
            "prunes",
            "Texts answered, by what happened: pruned, untouched or fallback.",
            ("source_type", "backend", "outcome"),
        )
        self.warnings = self._counter("prune_warnings", "Warning codes given with answers.", ("code",))
        self.faults = self._counter(
            "prune_faults", "Faults of ours that an answer survived, by the step that failed.", ("step", "code")
        )
        self.tokens_before = self._counter("prune_tokens_before", "Tokens of the texts as they came.")
        self.tokens_after = self._counter("prune_tokens_after", "Tokens of the texts as they left, markers included.")
        self.prune_seconds = self._histogram("prune_seconds", "Time from question to answer.", _SECONDS)
        self.recoveries = self._counter(
            "recoveries", "Requests for original lines: ok, or the code of the error.", ("outcome",)
        )

    def _of_the_gateway(self) -> None:
        self.gateway_calls = self._counter(
            "gateway_calls",
            "Messages passed to MCP servers: ok, or the code of the error.",
            ("server", "outcome"),
        )
        self.gateway_masked = self._counter(
            "gateway_masked",
            "Texts in answers of MCP servers that were masked, or left whole because they could not be kept.",
            ("server", "outcome"),
        )

    def _of_chat(self) -> None:
        self.chat_requests = self._counter(
            "chat_requests",
            "Chat requests by what became of them: ok, client_gone or the code of an error, and the provider's status.",
            ("provider", "outcome", "status"),
        )
        self.chat_seconds = self._histogram(
            "chat_seconds", "Time from a chat request to the last byte of its answer.", _LONG_SECONDS, ("provider",)
        )
        self.chat_first_byte_seconds = self._histogram(
            "chat_first_byte_seconds",
            "Time from a chat request to the first byte of its answer's body.",
            _LONG_SECONDS,
            ("provider",),
        )
        self.chat_tokens = self._counter(
            "chat_tokens", "Tokens as the providers count them; input includes cached.", ("provider", "kind")
        )
        self.net_saved_tokens = Gauge(
            "kimi_proxy_net_saved_tokens",
            "Tokens saved since the start after lost cache reads, recoveries and summaries; it may fall.",
            ("provider",),
            self.registry,
        )
        self.chat_faults = self._counter(
            "chat_faults", "Faults of ours that a chat request survived, by the stage that failed.", ("stage", "code")
        )
        self.journal_dropped = self._counter(
            "journal_dropped", "Chat requests that were not noted, by reason: busy, disk, fault, stopped.", ("reason",)
        )
        self.viewers_evicted = self._counter("viewers_evicted", "Viewers of /ws that read too slowly.")

    def _of_the_sanitizer(self) -> None:
        self.sanitizer_outputs = self._counter(
            "sanitizer_outputs",
            "Long outputs of tools in chat requests, by what was done about them or why nothing was.",
            ("why",),
        )
        self.sanitizer_tokens_saved = self._counter(
            "sanitizer_tokens_saved",
            "Tokens that requests did not carry because outputs were cut, counted in every request.",
        )

    def _of_hooks(self) -> None:
        self.hook_outputs = self._counter(
            "hook_outputs", "Outputs of tools that hooks handed over: cut, or why a fault let one through.", ("why",)
        )
        self.hook_tokens_saved = self._counter("hook_tokens_saved", "Tokens that hooks kept out of conversations.")

    def _counter(self, name: str, help: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(f"kimi_proxy_{name}", help, labels, self.registry)

    def _histogram(self, name: str, help: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()) -> Histogram:
        return Histogram(f"kimi_proxy_{name}", help, labels, buckets, self.registry)


class ProviderMetrics:
    """The series of one provider, found once: to find them by their labels takes longer than to count."""

    def __init__(self, metrics: Metrics, provider: str) -> None:
        self.seconds = metrics.chat_seconds.labels(provider)
        self.first_byte_seconds = metrics.chat_first_byte_seconds.labels(provider)
        self._metrics, self._provider = metrics, provider
        self._tokens: tuple[IncreasingValue, ...] | None = None

    def count_tokens(self, input_tokens: int, cached_tokens: int, output_tokens: int) -> None:
        """Add the provider's own count of a request."""
        if self._tokens is None:  # a provider that never counts has no such series
            of_kind = self._metrics.chat_tokens.labels
            self._tokens = tuple(of_kind(self._provider, kind) for kind in ("input", "cached", "output"))
        for series, tokens in zip(self._tokens, (input_tokens, cached_tokens, output_tokens), strict=True):
            series.inc(tokens)
