import pytest
from pydantic import BaseModel, ConfigDict

from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.features.tool import TERMINAL, TRANSITIONS, Integer, RequestEvent, RequestState, validate


class Count(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    n: Integer


@pytest.mark.parametrize(("given", "read"), [(3, 3), (3.0, 3), (-0.0, 0), (10**40, 10**40)])
def test_an_integer_is_what_json_schema_calls_one(given: float, read: int) -> None:
    found = validate(Count, {"n": given}).n
    assert (found, type(found)) == (read, int)


@pytest.mark.parametrize("given", [True, 3.5, "3", None, float("nan"), float("inf")])
def test_nothing_else_is_an_integer(given: str | float | None) -> None:
    with pytest.raises(InvalidParams) as refused:
        validate(Count, {"n": given})
    assert refused.value.field == "n"


def test_the_first_wrong_field_is_named_even_when_it_should_not_be_there() -> None:
    with pytest.raises(InvalidParams) as refused:
        validate(Count, {"n": 1, "m": 2})
    assert refused.value.data() == {"code": "invalid_params", "field": "m"}


def test_every_missing_and_every_unknown_field_is_named_at_once() -> None:
    with pytest.raises(InvalidParams) as refused:
        validate(Count, {"m": 2, "o": 3})

    assert str(refused.value).startswith("n: Field required; m: there is no such field")
    assert refused.value.data() == {"code": "invalid_params", "field": "n", "fields": ["n", "m", "o"]}


# The table of requests: complete, and without ways that nobody described.


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
