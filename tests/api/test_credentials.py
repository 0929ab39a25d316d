"""Tokens and people that one caller makes: a token that was replaced or revoked makes none, however shortly before."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from tests.api.people_world import PeopleServer, people_world
from tests.support.services.store import postgres_server

from kimi_proxy.team.people import MAX_TOKENS


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server.serving() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
async def people(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PeopleServer]:
    url = ""
    if request.param == "postgres":
        url = postgres_server.url_of(request.getfixturevalue("server"), tmp_path)
    async with people_world(tmp_path, urls=(url,)) as world:
        yield world.servers[0]


async def make_token(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/api/me/tokens", json={"label": "laptop"})


async def status_of(p: PeopleServer, token: str) -> int:
    return (await p.proxy.http.get("/api/me", headers={"x-kimi-proxy-token": token})).status_code


async def test_a_token_makes_none_from_the_moment_it_is_rotated(people: PeopleServer):
    async with people.person("ada") as stolen, people.person("dee") as dee:
        for _ in range(3):
            assert (await stolen.get("/api/me")).status_code == 200  # from now on it is remembered
            rotated = await dee.post("/api/team/people/ada/rotate")

            assert (await make_token(stolen)).status_code in (401, 403)

            people.tokens["ada"] = rotated.json()["token"]
            stolen.headers["x-kimi-proxy-token"] = people.tokens["ada"]
    async with people.person("ada") as ada:
        assert (await ada.get("/api/me/tokens")).json()["tokens"] == []


async def test_a_revoked_token_makes_none_before_and_after_its_person_gets_a_new_one(people: PeopleServer):
    async with people.person("ada") as stolen, people.person("dee") as dee:
        assert (await stolen.get("/api/me")).status_code == 200
        await dee.post("/api/team/people/ada/revoke")
        while_revoked = await make_token(stolen)
        await dee.post("/api/team/people/ada/rotate")
        afterwards = await make_token(stolen)

    assert {while_revoked.status_code, afterwards.status_code} <= {401, 403}


async def test_of_tokens_that_are_made_around_a_rotation_none_works_afterwards(people: PeopleServer):
    async with people.person("ada") as stolen, people.person("dee") as dee:
        rotated: list[httpx.Response] = []
        made: list[str] = []
        is_making = asyncio.Event()

        async def make_tokens() -> None:
            """Ask about once a millisecond until the rotation is over."""
            while not rotated:
                answer = await make_token(stolen)
                if answer.status_code == 201:
                    made.append(answer.json()["token"])
                    is_making.set()

        async def rotate() -> None:
            await is_making.wait()
            rotated.append(await dee.post("/api/team/people/ada/rotate"))

        await asyncio.gather(rotate(), *(make_tokens() for _ in range(4)))

        assert [await status_of(people, token) for token in made] == [401] * len(made)


async def test_a_token_that_a_person_made_makes_no_other(people: PeopleServer):
    async with people.person("ada") as ada, people.person("dee") as dee:
        of_ada = (await make_token(ada)).json()["token"]
        of_dee = (await make_token(dee)).json()["token"]
    made = {"x-kimi-proxy-token": of_ada}
    admins = {"x-kimi-proxy-token": of_dee}
    http = people.proxy.http

    refused = await http.post("/api/me/tokens", json={}, headers=made)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "access_denied")
    assert "log in to the dashboard" in refused.json()["error"]["message"]
    assert (await http.post("/api/team/people/dee/rotate", headers=admins)).status_code == 403
    assert (await http.post("/api/team/people", json={"name": "gus"}, headers=admins)).status_code == 403
    assert [await status_of(people, token) for token in (of_ada, of_dee)] == [200, 200]


async def test_an_admin_whose_token_was_replaced_adds_and_rotates_no_one(people: PeopleServer):
    async with people.person("dee") as stolen:
        assert (await stolen.get("/api/me")).status_code == 200
        people.tokens["dee"] = (await stolen.post("/api/team/people/dee/rotate")).json()["token"]

        assert (await stolen.post("/api/team/people", json={"name": "gus"})).status_code in (401, 403)
        assert (await stolen.post("/api/team/people/ada/rotate")).status_code in (401, 403)
    async with people.person("ada") as ada, people.person("dee") as dee:
        assert (await ada.get("/api/me")).status_code == 200
        assert (await dee.post("/api/team/people", json={"name": "gus"})).status_code == 201


async def test_sixty_requests_at_once_make_no_more_tokens_than_a_person_may_have(people: PeopleServer):
    async with people.person("ada") as ada:
        answers = await asyncio.gather(*(make_token(ada) for _ in range(60)))
        held = (await ada.get("/api/me/tokens")).json()["tokens"]

    assert len(held) == MAX_TOKENS
    assert sorted(answer.status_code for answer in answers) == [201] * MAX_TOKENS + [400] * (60 - MAX_TOKENS)
