"""Which larger model a request goes to."""

import pytest

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.features.models.routing import ModelWindow, Route, apply_route, choose_model


def room(window: int) -> ModelWindow:
    return ModelWindow(Target("p", f"m{window}", f"p/m{window}"), window)


SMALL = room(100)
OTHERS = [room(1000), room(100), room(200), room(50), room(400)]


@pytest.mark.parametrize(
    ("tokens", "window"),
    [
        (90, 200),  # the smallest that is larger
        (179, 200),
        (180, 400),  # 90 % of 200: no better off there
        (360, 1000),
        (950, 1000),  # over the threshold everywhere: where it fits at all
        (1000, 1000),
        (1001, None),
    ],
)
def test_the_smallest_model_with_room_to_spare_is_chosen(tokens: int, window: int | None):
    found = choose_model(tokens, SMALL, OTHERS, 0.9)

    assert (found and found.size) == window


@pytest.mark.parametrize(
    ("tokens", "answer", "window"),
    [
        (90, 105, 200),
        (90, 106, 400),  # 98 % of 200 would not hold both
        (150, 199, 200),  # an answer as long as the window is no reservation
    ],
)
def test_a_model_must_have_room_for_the_answer_too(tokens: int, answer: int, window: int):
    found = choose_model(tokens, SMALL, OTHERS, 0.9, answer)

    assert (found and found.size) == window


def test_there_may_be_none():
    assert choose_model(90, SMALL, [room(50), SMALL], 0.9) is None


def a_draft() -> Draft:
    return Draft(parse(b'{"model": "p/m100", "messages": []}', Wire.CHAT), SMALL.target, Session("ses_1"), LOCAL)


def test_whoever_asked_is_told_where_the_request_went():
    done = apply_route(a_draft(), Route(SMALL, room(200), 95, is_new=True))

    assert done.target.model == "m200"
    assert done.answer_headers == ((b"x-kimi-proxy-model", b"p/m200"),)
    (note,) = done.notes
    assert note.event == "model_routed"
    assert note.fields == {
        "from": "p/m100",
        "to": "p/m200",
        "tokens": 95,
        "asked_max_context": 100,
        "asked_percent": 95.0,
        "max_context": 200,
        "percent": 47.5,
        "new": True,
    }


def test_a_request_without_a_better_place_goes_on_with_a_warning():
    done = apply_route(a_draft(), Route(SMALL, SMALL, 95, is_tight=True, is_newly_tight=True))

    assert (done.target, done.answer_headers, done.reasons) == (SMALL.target, (), ("no_larger_model",))
    assert [note.event for note in done.notes] == ["routing_unavailable"]
    assert apply_route(a_draft(), Route(SMALL, SMALL, 95, is_tight=True)).notes == ()


def test_a_request_that_is_tight_in_the_largest_model_too_is_told_of_both():
    done = apply_route(a_draft(), Route(SMALL, room(200), 190, is_new=True, is_tight=True, is_newly_tight=True))

    assert (done.target.model, done.reasons) == ("m200", ("no_larger_model",))
    assert [note.event for note in done.notes] == ["routing_unavailable", "model_routed"]


def test_a_request_with_room_to_spare_is_the_same_object():
    draft = a_draft()

    assert apply_route(draft, Route(SMALL, SMALL, 50)) is draft


def test_a_name_that_no_header_can_hold_is_told_as_far_as_it_can_be():
    odd = ModelWindow(Target("p", "m", "p/été\n"), 200)

    ((_, value),) = apply_route(a_draft(), Route(SMALL, odd, 95)).answer_headers

    assert value.isascii()
    assert b"\n" not in value
