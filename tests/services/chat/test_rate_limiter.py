"""So many requests at once, then as many as trickle in."""

import pytest

from kimi_proxy.services.chat.providers import Rate


def test_a_full_bucket_is_spent_at_once_and_refills_with_time():
    rate = Rate(6)
    for _ in range(6):
        assert rate.wait_s(100.0) == 0
        rate = rate.with_request(100.0)

    assert rate.wait_s(100.0) == pytest.approx(10)
    assert rate.wait_s(105.0) == pytest.approx(5)
    assert rate.wait_s(110.0) == pytest.approx(0)
    assert rate.with_request(110.0).wait_s(110.0) == pytest.approx(10)
    assert rate.wait_s(1000.0) == 0


def test_no_limit_is_no_limit():
    rate = Rate(0)
    for _ in range(1000):
        rate = rate.with_request(1.0)

    assert rate.wait_s(1.0) == 0


def test_a_clock_that_jumps_back_blocks_nobody_for_long():
    rate = Rate(60).with_request(1000.0)

    assert rate.wait_s(0.0) == 0
