"""What is counted for Prometheus: counters, gauges and histograms, those of one runtime, and the text (version 0.0.4).

Loading the official client takes 0.1 s of CPU, for servers and parsers that are not used here.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, Generic, Protocol, TypeVar

INFINITY = float("inf")
Labels = tuple[str, ...]
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_LONG_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class CountedValue:
    """One number, that threads may change at the same time."""

    __slots__ = ("_lock", "_value")

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._value = 0.0

    @property
    def value(self) -> float:
        return self._value

    def inc(self, amount: float = 1) -> None:
        with self._lock:
            self._value += amount


class IncreasingValue(CountedValue):
    """A number that never falls."""

    def inc(self, amount: float = 1) -> None:
        """Raise ValueError for an amount below zero: Prometheus would read it as a restart."""
        if amount < 0:
            raise ValueError(f"a counter cannot fall by {-amount}")
        super().inc(amount)


class SettableValue(CountedValue):
    """A number that rises and falls."""

    def set(self, value: float) -> None:
        with self._lock:
            self._value = float(value)


class ObservedValues:
    """How many values fell into each bucket, and their sum."""

    __slots__ = ("_bounds", "_lock", "counts", "sum")

    def __init__(self, lock: threading.Lock, bounds: Sequence[float]) -> None:
        self._lock, self._bounds = lock, bounds
        self.counts = [0] * len(bounds)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        with self._lock:
            self.counts[bisect_left(self._bounds, value)] += 1
            self.sum += value


Series = TypeVar("Series")


class ExposedFamily(Protocol):
    """What a registry reads of a metric."""

    name: str
    help: str
    kind: ClassVar[str]

    def samples(self) -> Iterator[str]:
        """Yield a line for each number."""
        ...


class MetricFamily(Generic[Series]):
    """A metric with its series, one for each combination of its labels' values."""

    kind: ClassVar[str]

    def __init__(self, name: str, help: str, labels: Sequence[str], registry: "MetricRegistry") -> None:
        self.name, self.help, self.label_names = name, help, tuple(labels)
        self._lock = threading.Lock()
        self.series: dict[Labels, Series] = {}
        if not labels:  # what has no labels is there from the beginning, with 0
            self.series[()] = self._new()
        registry.families.append(self)

    def labels(self, *values: str) -> Series:
        """Return the series of these values, in the order of the names. Raise ValueError if some are missing."""
        found = self.series.get(values)
        if found is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {len(values)}")
            with self._lock:
                found = self.series.setdefault(values, self._new())
        return found

    def samples(self) -> Iterator[str]:
        for values, series in list(self.series.items()):
            yield from self._lines(dict(zip(self.label_names, values, strict=True)), series)

    def _new(self) -> Series:
        raise NotImplementedError

    def _lines(self, labels: dict[str, str], series: Series) -> Iterator[str]:
        raise NotImplementedError


class Counter(MetricFamily[IncreasingValue]):
    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str], registry: "MetricRegistry") -> None:
        super().__init__(f"{name}_total", help, labels, registry)

    def inc(self, amount: float = 1) -> None:
        self.series[()].inc(amount)

    def _new(self) -> IncreasingValue:
        return IncreasingValue(self._lock)

    def _lines(self, labels: dict[str, str], series: IncreasingValue) -> Iterator[str]:
        yield _line(self.name, labels, series.value)


class Gauge(MetricFamily[SettableValue]):
    kind = "gauge"

    def set(self, value: float) -> None:
        self.series[()].set(value)

    def _new(self) -> SettableValue:
        return SettableValue(self._lock)

    def _lines(self, labels: dict[str, str], series: SettableValue) -> Iterator[str]:
        yield _line(self.name, labels, series.value)


class Histogram(MetricFamily[ObservedValues]):
    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: Sequence[str], bounds: Sequence[float], registry: "MetricRegistry"
    ) -> None:
        self._bounds = (*bounds, INFINITY)
        super().__init__(name, help, labels, registry)

    def observe(self, value: float) -> None:
        self.series[()].observe(value)

    def _new(self) -> ObservedValues:
        return ObservedValues(self._lock, self._bounds)

    def _lines(self, labels: dict[str, str], series: ObservedValues) -> Iterator[str]:
        with self._lock:
            counts, total = list(accumulate(series.counts)), series.sum
        for bound, count in zip(self._bounds, counts, strict=True):
            yield _line(f"{self.name}_bucket", {**labels, "le": _number(bound)}, count)
        yield _line(f"{self.name}_count", labels, counts[-1])
        yield _line(f"{self.name}_sum", labels, total)


class MetricRegistry:
    """All metrics of one server."""

    def __init__(self) -> None:
        self.families: list[ExposedFamily] = []

    def text(self) -> bytes:
        """Return what Prometheus reads."""
        lines: list[str] = []
        for family in self.families:
            lines.append(f"# HELP {family.name} {_escaped(family.help)}\n# TYPE {family.name} {family.kind}\n")
            lines += family.samples()
        return "".join(lines).encode("utf-8", "replace")


def _line(name: str, labels: dict[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_quoted(labels[key])}"' for key in sorted(labels))
    return f"{name}{{{pairs}}} {_number(value)}\n" if pairs else f"{name} {_number(value)}\n"


def _number(value: float) -> str:
    return "+Inf" if value == INFINITY else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


class Metrics:
    """All that one runtime counts; the process has none beside it."""

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
