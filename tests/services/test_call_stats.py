"""What is known of a server from its traffic."""

from kimi_proxy.services.gateway import CallStats


def test_recent_answers_count_more_and_old_ones_are_not_forgotten_at_once():
    stats = CallStats()
    assert stats.latency_ms is None
    stats.took(0.1)
    assert stats.latency_ms == 100
    for _ in range(50):
        stats.took(0.2)

    assert 199 < (stats.latency_ms or 0) < 200


def test_masked_texts_add_up():
    stats = CallStats()
    stats.masked(["abc", "de"])
    stats.masked([])

    assert (stats.masked_texts, stats.masked_chars) == (2, 5)
