"""Numbers for Prometheus, in the text that it reads."""

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.prometheus import parse

from kimi_proxy.services.metrics import Counter, Gauge, Histogram, MetricRegistry, Metrics


def test_each_kind_is_written_as_prometheus_reads_it():
    registry = MetricRegistry()
    Counter("calls", "Calls by outcome.", ("tool", "outcome"), registry).labels("read", "ok").inc()
    Counter("starts", "Starts.", (), registry)
    Gauge("room", "Room that is left.", (), registry).set(7)
    seconds = Histogram("seconds", "Time.", ("tool",), (0.1, 1.0), registry)
    for value in (0.05, 0.1, 0.5, 30):
        seconds.labels("read").observe(value)

    assert (
        registry.text().decode()
        == """\
# HELP calls_total Calls by outcome.
# TYPE calls_total counter
calls_total{outcome="ok",tool="read"} 1.0
# HELP starts_total Starts.
# TYPE starts_total counter
starts_total 0.0
# HELP room Room that is left.
# TYPE room gauge
room 7.0
# HELP seconds Time.
# TYPE seconds histogram
seconds_bucket{le="0.1",tool="read"} 2.0
seconds_bucket{le="1.0",tool="read"} 3.0
seconds_bucket{le="+Inf",tool="read"} 4.0
seconds_count{tool="read"} 4.0
seconds_sum{tool="read"} 30.65
"""
    )


def test_a_counter_never_falls():
    calls = Counter("calls", "Calls.", (), MetricRegistry())
    with pytest.raises(ValueError, match="cannot fall"):
        calls.inc(-1)

    assert calls.labels().value == 0


def test_a_gauge_may_fall():
    room = Gauge("room", "Room.", ("of",), MetricRegistry())
    room.labels("disk").inc(-3)

    assert room.labels("disk").value == -3


def test_a_label_that_is_missing_is_a_fault_of_ours():
    with pytest.raises(ValueError, match=r"calls_total has the labels \('tool',\), not 2"):
        Counter("calls", "Calls.", ("tool",), MetricRegistry()).labels("read", "ok")


def test_threads_that_count_at_once_lose_nothing():
    registry = MetricRegistry()
    calls = Counter("calls", "Calls.", ("tool",), registry)
    seconds = Histogram("seconds", "Time.", (), (1.0,), registry)

    def count() -> None:
        for at in range(5000):
            calls.labels(str(at % 3)).inc()
            seconds.observe(0.5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(series.value for series in calls.series.values()) == 20_000
    assert 'seconds_bucket{le="1.0"} 20000.0\n' in registry.text().decode()


@given(st.text(), st.text(), st.floats(allow_nan=False))
def test_any_label_help_and_number_comes_back_from_a_strict_parser(label: str, help: str, value: float):
    registry = MetricRegistry()
    Gauge("room", help, ("of",), registry).labels(label).set(value)
    (family,) = parse(registry.text().decode())

    assert family.help == help
    ((name, labels, read),) = family.samples
    assert (name, labels) == ("room", {"of": label})
    assert read == value or math.isclose(read, value)


def test_two_runtimes_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.recoveries.labels("ok").inc()
    assert b'kimi_proxy_recoveries_total{outcome="ok"} 1.0' in one.text()
    assert b"outcome=" not in other.text()
