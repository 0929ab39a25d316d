from kimi_proxy.services.metrics import Metrics


def test_two_runtimes_in_one_process_count_apart() -> None:
    one, other = Metrics(), Metrics()
    one.recoveries.labels("ok").inc()
    assert b'kimi_proxy_recoveries_total{outcome="ok"} 1.0' in one.text()
    assert b"outcome=" not in other.text()
