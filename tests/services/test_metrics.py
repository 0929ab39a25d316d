"""Numbers for Prometheus, in the text that it reads."""

from prometheus_client.parser import text_string_to_metric_families

from kimi_proxy.services.metrics import Metrics


def test_every_kind_of_metric_is_in_the_text_that_prometheus_reads():
    metrics = Metrics()
    metrics.count_tool_call("read", "ok", 0.02)
    metrics.store_originals.set(7)
    metrics.net_saved_tokens.labels("nvidia").inc(-3)
    lines = metrics.text().decode().splitlines()

    assert {
        "# TYPE kimi_proxy_tool_calls_total counter",
        'kimi_proxy_tool_calls_total{outcome="ok",tool="read"} 1.0',
        'kimi_proxy_tool_seconds_bucket{le="0.01",tool="read"} 0.0',
        'kimi_proxy_tool_seconds_bucket{le="0.025",tool="read"} 1.0',
        'kimi_proxy_tool_seconds_bucket{le="+Inf",tool="read"} 1.0',
        'kimi_proxy_tool_seconds_sum{tool="read"} 0.02',
        "kimi_proxy_store_originals 7.0",
        'kimi_proxy_net_saved_tokens{provider="nvidia"} -3.0',
        "kimi_proxy_viewers_evicted_total 0.0",
    } <= set(lines)


def test_no_series_says_when_a_counter_was_made():
    metrics = Metrics()
    metrics.recoveries.labels("ok").inc()
    found = [
        sample.name for family in text_string_to_metric_families(metrics.text().decode()) for sample in family.samples
    ]

    assert [name for name in found if name.endswith("_created")] == []


def test_two_runtimes_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.recoveries.labels("ok").inc()
    assert b'kimi_proxy_recoveries_total{outcome="ok"} 1.0' in one.text()
    assert b"outcome=" not in other.text()
