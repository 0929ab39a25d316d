"""The table of requests: complete, and without ways that nobody described."""

import pytest

from kimi_proxy.features.tool import TERMINAL, TRANSITIONS, RequestEvent, RequestState


def test_every_state_but_the_first_can_be_reached():
    reached = {transition.to for transition in TRANSITIONS.values()}

    assert reached == set(RequestState) - {RequestState.RECEIVED}


def test_a_finished_request_goes_nowhere():
    assert {state for state, _ in TRANSITIONS} == set(RequestState) - TERMINAL


def test_every_event_happens_somewhere():
    assert {event for _, event in TRANSITIONS} == set(RequestEvent)


@pytest.mark.parametrize("state", sorted(set(RequestState) - TERMINAL))
def test_an_exception_ends_a_request_wherever_it_is(state: RequestState):
    end = TRANSITIONS[state, RequestEvent.EXCEPTION]

    assert (end.to, end.logs) == (RequestState.INTERNAL_ERROR, ("tool.internal_error",))


def test_no_request_goes_round_in_circles():
    order = list(RequestState)

    for (state, _), transition in TRANSITIONS.items():
        assert order.index(transition.to) > order.index(state)
