"""The table of runs: complete, and without ways that nobody described."""

from kimi_proxy.connect.runner import TRANSITIONS, RunEvent, State


def test_every_state_but_the_first_can_be_reached():
    assert {transition.to for transition in TRANSITIONS.values()} == set(State) - {State.INIT}


def test_the_end_leads_nowhere_else():
    assert {transition.to for (state, _), transition in TRANSITIONS.items() if state is State.SHUTDOWN} == {
        State.SHUTDOWN
    }


def test_every_event_happens_somewhere():
    assert {event for _, event in TRANSITIONS} == set(RunEvent)


def test_no_run_goes_back():
    order = list(State)

    for (state, _), transition in TRANSITIONS.items():
        assert order.index(transition.to) > order.index(state) or transition.to is state


def test_a_run_can_end_wherever_it_stands():
    last = {state for state, event in TRANSITIONS if event in (RunEvent.PHASE_ENDED, RunEvent.GIVEN_UP)}

    # A run that begins has decided before anything can end it.
    assert last == set(State) - {State.INIT, State.SHUTDOWN}
