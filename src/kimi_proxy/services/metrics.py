"""What is counted, for Prometheus to read; one registry per runtime, none for the process."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


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

    def text(self) -> bytes:
        """Everything counted, in Prometheus' text format."""
        return generate_latest(self.registry)
