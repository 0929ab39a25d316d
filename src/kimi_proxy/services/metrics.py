"""What is counted, for Prometheus to read; one registry per runtime, none for the process."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.prunes = Counter(
            "kimi_proxy_prunes",
            "Texts answered, by what happened: pruned, untouched or fallback.",
            ["source_type", "backend", "outcome"],
            registry=self.registry,
        )
        self.warnings = Counter(
            "kimi_proxy_prune_warnings",
            "Warning codes given with answers.",
            ["code"],
            registry=self.registry,
        )
        self.faults = Counter(
            "kimi_proxy_prune_faults",
            "Faults of ours that an answer survived, by the step that failed.",
            ["step", "code"],
            registry=self.registry,
        )
        self.tokens_before = Counter(
            "kimi_proxy_prune_tokens_before",
            "Tokens of the texts as they came.",
            registry=self.registry,
        )
        self.tokens_after = Counter(
            "kimi_proxy_prune_tokens_after",
            "Tokens of the texts as they left, markers included.",
            registry=self.registry,
        )
        self.prune_seconds = Histogram(
            "kimi_proxy_prune_seconds",
            "Time from question to answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.recoveries = Counter(
            "kimi_proxy_recoveries",
            "Requests for original lines: ok, or the code of the error.",
            ["outcome"],
            registry=self.registry,
        )
        self.gateway_calls = Counter(
            "kimi_proxy_gateway_calls",
            "Messages passed to MCP servers: ok, or the code of the error.",
            ["server", "outcome"],
            registry=self.registry,
        )
        self.gateway_masked = Counter(
            "kimi_proxy_gateway_masked",
            "Texts in answers of MCP servers that were masked, or left whole because they could not be kept.",
            ["server", "outcome"],
            registry=self.registry,
        )

        self.chat_requests = Counter(
            "kimi_proxy_chat_requests",
            "Chat requests by what became of them: ok, client_gone or the code of an error, and the provider's status.",
            ["provider", "outcome", "status"],
            registry=self.registry,
        )
        self.chat_seconds = Histogram(
            "kimi_proxy_chat_seconds",
            "Time from a chat request to the last byte of its answer.",
            ["provider"],
            buckets=_LONG_SECONDS,
            registry=self.registry,
        )
        self.chat_first_byte_seconds = Histogram(
            "kimi_proxy_chat_first_byte_seconds",
            "Time from a chat request to the first byte of its answer's body.",
            ["provider"],
            buckets=_LONG_SECONDS,
            registry=self.registry,
        )
        self.chat_tokens = Counter(
            "kimi_proxy_chat_tokens",
            "Tokens as the providers count them; input includes cached.",
            ["provider", "kind"],
            registry=self.registry,
        )
        self.net_saved_tokens = Gauge(
            "kimi_proxy_net_saved_tokens",
            "Tokens saved since the start after lost cache reads, recoveries and summaries; it may fall.",
            ["provider"],
            registry=self.registry,
        )
        self.chat_faults = Counter(
            "kimi_proxy_chat_faults",
            "Faults of ours that a chat request survived, by the stage that failed.",
            ["stage", "code"],
            registry=self.registry,
        )

        self.journal_dropped = Counter(
            "kimi_proxy_journal_dropped",
            "Chat requests that were not noted, by reason: busy, disk, fault, stopped.",
            ["reason"],
            registry=self.registry,
        )
        self.viewers_evicted = Counter(
            "kimi_proxy_viewers_evicted",
            "Viewers of /ws that read too slowly.",
            registry=self.registry,
        )

        self.sanitizer_outputs = Counter(
            "kimi_proxy_sanitizer_outputs",
            "Long outputs of tools in chat requests, by what was done about them or why nothing was.",
            ["why"],
            registry=self.registry,
        )
        self.sanitizer_tokens_saved = Counter(
            "kimi_proxy_sanitizer_tokens_saved",
            "Tokens that requests did not carry because outputs were cut, counted in every request.",
            registry=self.registry,
        )

    def text(self) -> bytes:
        """Everything counted, in Prometheus' text format."""
        return generate_latest(self.registry)
