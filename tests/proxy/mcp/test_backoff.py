"""How long to wait before a crashed server is started again."""

from tests.support.fakes import Clock

from kimi_proxy.proxy.mcp.program import Backoff


def test_the_pauses_double_up_to_half_a_minute():
    backoff = Backoff(Clock())
    pauses = []
    for _ in range(10):
        backoff.on_crash(lived_s=1)
        pauses.append(backoff.wait_s)

    assert pauses == [0, 0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_at_most_ten_restarts_fit_in_a_minute():
    clock = Clock()
    backoff = Backoff(clock)
    until, restarts = clock.at + 60, 0
    while clock.at < until:
        backoff.on_crash(lived_s=0)
        clock.advance(backoff.wait_s)
        restarts += 1

    assert restarts <= 10


def test_a_pause_passes_with_time():
    clock = Clock()
    backoff = Backoff(clock)
    backoff.on_crash(0)
    backoff.on_crash(0)
    clock.advance(0.4)
    assert 0.05 < backoff.wait_s < 0.15
    clock.advance(1)

    assert backoff.wait_s == 0


def test_a_long_life_forgives_the_crashes_before_it():
    backoff = Backoff(Clock())
    for _ in range(9):
        backoff.on_crash(lived_s=1)
    assert backoff.is_hopeless
    backoff.on_crash(lived_s=60)

    assert (backoff.crashes, backoff.wait_s, backoff.is_hopeless) == (1, 0, False)
