"""What is known of a server from its traffic."""

from kimi_proxy.services.gateway import Tally


def test_recent_answers_count_more_and_old_ones_are_not_forgotten_at_once():
    tally = Tally()
    assert tally.latency_ms is None
    tally.took(0.1)
    assert tally.latency_ms == 100
    for _ in range(50):
        tally.took(0.2)

    assert 199 < (tally.latency_ms or 0) < 200


def test_masked_texts_add_up():
    tally = Tally()
    tally.masked(["abc", "de"])
    tally.masked([])

    assert (tally.masked_texts, tally.masked_chars) == (2, 5)
