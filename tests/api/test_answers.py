"""A route is described by the type that its handler returns, so mypy compares the description with the code."""

from typing import TypedDict

import pytest
from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api.routing import Access, DescribedRoute, RouteSpec, json_route
from kimi_proxy.core.json import JsonObject

SPEC = RouteSpec("Say hello", access=Access.PEOPLE)


class Hello(TypedDict):
    hello: str


def test_a_route_answers_with_the_type_that_its_handler_returns():
    async def say_hello(request: Request) -> Hello | Response:
        return {"hello": "you"}

    route = json_route("GET", "/hello", say_hello, SPEC)

    assert isinstance(route, DescribedRoute)
    assert route.spec.answer == Hello


def test_a_route_whose_answer_has_no_type_is_refused():
    async def say_anything(request: Request) -> JsonObject:
        return {"hello": "you"}

    with pytest.raises(TypeError, match="which type of JSON"):
        json_route("GET", "/hello", say_anything, SPEC)


async def test_a_route_answers_with_the_status_of_its_spec():
    async def make(request: Request) -> Hello:
        return {"hello": "you"}

    route = json_route("POST", "/hello", make, RouteSpec("Make", status=201, access=Access.PEOPLE))
    answer = await route.endpoint(Request({"type": "http"}))

    assert (answer.status_code, answer.body) == (201, b'{"hello":"you"}')
