"""Counters, gauges and histograms, and the text format in which Prometheus reads them (version 0.0.4).

Loading the official client takes 0.1 s of CPU, for servers and parsers that are not used here.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import ClassVar, Generic, Protocol, TypeVar

INFINITY = float("inf")
Labels = tuple[str, ...]


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
