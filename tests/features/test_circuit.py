"""A server that keeps failing is left alone for a while."""

from kimi_proxy.features.gateway import CLOSED, CircuitBreaker


def after(*failures: float, circuit: CircuitBreaker = CLOSED) -> CircuitBreaker:
    for at in failures:
        circuit = circuit.on_try(at).on_failure(at)
    return circuit


def test_four_failures_in_a_row_block_nobody():
    assert after(0, 1, 2, 3).blocked_for(3) == 0


def test_the_fifth_opens_the_circuit_for_five_seconds():
    circuit = after(0, 0.1, 0.2, 0.3, 0.4)

    assert circuit.blocked_for(0.4) == 5
    assert round(circuit.blocked_for(2.4), 3) == 3
    assert circuit.blocked_for(5.5) == 0


def test_what_faded_to_four_and_a_half_still_opens_it():
    assert after(0, circuit=CircuitBreaker(3.5)).blocked_for(0) == 5
    assert after(0, circuit=CircuitBreaker(3.49)).blocked_for(0) == 0


def test_failures_that_lie_far_apart_never_open_it():
    assert after(*range(0, 3600, 60)).blocked_for(3600) == 0


def test_after_the_pause_one_call_tries_and_the_others_wait_for_it():
    circuit = after(0, 0, 0, 0, 0).on_try(6)

    assert circuit.blocked_for(6) > 0


def test_a_trial_that_fails_makes_the_pause_longer_up_to_a_minute():
    circuit = after(0, 0, 0, 0, 0)
    now, pauses = 0.0, []
    for _ in range(6):
        now += circuit.blocked_for(now)
        circuit = circuit.on_try(now).on_failure(now)
        pauses.append(circuit.blocked_for(now))

    assert pauses == [10, 20, 40, 60, 60, 60]
