"""With the server's key, each person of a team reaches only those objects of a provider that were made for them."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.api.people_world import SHARED, PeopleWorld, people_world
from tests.support.services.store import postgres_server

SECRET = "zebra-crossing"
ASK = {"model": "openai-evil/m", "input": [{"role": "user", "content": SECRET}]}
BATCH = {"requests": [{"custom_id": "1", "params": {"model": "m", "messages": [{"role": "user", "content": SECRET}]}}]}
NO_ID = "0" * 48


@pytest.fixture(params=["sqlite", "postgres"])
async def here(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PeopleWorld]:
    """Two servers with one PostgreSQL, or one with SQLite, which is both."""
    if request.param == "sqlite":
        async with people_world(tmp_path) as one:
            yield PeopleWorld((one.servers[0], one.servers[0]), one.provider, one.keeper)
        return
    with postgres_server.serving() as server:
        url = postgres_server.url_of(server, tmp_path)
        async with people_world(tmp_path, urls=(url, url)) as both:
            yield both


async def stored(client: httpx.AsyncClient, **more: object) -> str:
    answer = await client.post("/v1/responses", json={**ASK, **more})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def batched(client: httpx.AsyncClient) -> str:
    answer = await client.post("/v1/messages/batches", json=BATCH)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def told(answer: httpx.Response, id: str) -> tuple[int, str]:
    return answer.status_code, answer.text.replace(id, "ID")


PATHS = [
    *(("GET", "/v1/responses/ID"), ("GET", "/v1/responses/ID/input_items"), ("GET", "/v1/responses/ID?include[]=x")),
    *(("POST", "/v1/responses/ID/cancel"), ("DELETE", "/v1/responses/ID"), ("GET", "/v1/responses/v1/input_items")),
    *(("GET", "/v1/messages/batches?after_id=ID"), ("GET", "/v1/messages/batches?limit=2&before_id=ID")),
    *(("GET", "/v1/messages/batches/ID"), ("GET", "/v1/messages/batches/ID/results")),
    *(("POST", "/v1/messages/batches/ID/cancel"), ("DELETE", "/v1/messages/batches/ID")),
]


async def test_no_one_reads_lists_cancels_or_deletes_what_the_provider_keeps_for_another(here: PeopleWorld):
    """Finding 3: every person has the server's key, and by it everything that the provider keeps for all of them."""
    first, second = here.servers
    async with first.person("ada") as ada:
        ids = {"/v1/responses": await stored(ada), "/v1/messages/batches": await batched(ada)}
    before = json.dumps(here.keeper.kept)

    for name in ("ben", "cy", "dee"):
        async with second.person(name) as other:
            for method, path in PATHS:
                id = next(id for prefix, id in ids.items() if path.startswith(prefix))
                unknown = id[: id.rfind("_") + 1] + NO_ID
                theirs = await other.request(method, path.replace("ID", id))
                none = await other.request(method, path.replace("ID", unknown))
                assert told(theirs, id) == told(none, unknown), (name, method, path)
                assert theirs.status_code == 404 and SECRET not in theirs.text
            listed = (await other.get("/v1/messages/batches")).json()
            assert listed == {"data": [], "has_more": False, "first_id": None, "last_id": None}
    assert json.dumps(here.keeper.kept) == before
    assert not [heard for heard in here.provider.heard[2:] if any(id in heard.target for id in ids.values())]

    async with second.person("ada") as ada:
        for method, path in PATHS:
            id = next(id for prefix, id in ids.items() if path.startswith(prefix))
            answer = await ada.request(method, path.replace("ID", id))
            assert answer.status_code == 200 or "/v1/responses/v1" in path, (method, path, answer.text)
            if method == "DELETE":
                assert (await ada.request(method, path.replace("ID", id))).status_code == 404
    did = await first.audited() + await second.audited()
    assert {(who, id) for who, what, id in did if what == "refuse_provider_object" and id in ids.values()} == {
        (who, id) for who in ("ben", "cy", "dee") for id in ids.values()
    }
    assert {who for who, what, _ in did if what == "use_provider_object"} == {"ada"}


REFERENCES = [
    {"previous_response_id": "ID"},
    {"conversation": "ID"},
    {"conversation": {"id": "ID"}},
    {"input": [{"type": "item_reference", "id": "ID"}]},
    {"input": [{"id": "ID"}]},
    {"input": [{"type": "reasoning", "id": "ID", "summary": []}]},
    {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "ID"}]}]},
    {"tools": [{"type": "file_search", "vector_store_ids": ["ID"]}]},
    {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["ID"]}}]},
]


@pytest.mark.parametrize("reference", REFERENCES, ids=json.dumps)
async def test_a_body_that_names_anothers_object_goes_out_with_an_id_that_no_one_has(
    reference: dict[str, object], tmp_path: Path
):
    async with people_world(tmp_path) as here, here.servers[0].person("ada") as ada, here.servers[0].person("cy") as cy:
        id, unknown, whole = await stored(ada), f"resp_{NO_ID}", json.dumps({**ASK, **reference})
        for name in (id, id.replace("resp_", "resp\\u005f")):
            headers = {"content-type": "application/json"}
            answer = await cy.post("/v1/responses", content=whole.replace("ID", name), headers=headers)
            none = await cy.post("/v1/responses", json=json.loads(whole.replace("ID", unknown)))
            assert told(answer, id) == told(none, unknown)
            assert id not in here.provider.heard[-2].body.decode().replace("\\u005f", "_")
        own = await ada.post("/v1/responses", json=json.loads(whole.replace("ID", id)))

    assert own.status_code == 200, own.text
    assert id.encode() in here.provider.heard[-1].body


async def test_a_key_that_is_there_twice_or_hidden_by_an_escape_hides_no_reference(tmp_path: Path):
    async with people_world(tmp_path) as here, here.servers[0].person("ada") as ada, here.servers[0].person("cy") as cy:
        theirs, own = await stored(ada), await stored(cy)
        headers = {"content-type": "application/json"}
        twice = f'{{"model": "openai-evil/m", "previous_response_id": "{theirs}", "previous_response_id": "{own}"}}'
        hidden = f'{{"model": "openai-evil/m", "previous_\\u0072esponse_id": "{theirs}", "input": "x"}}'
        refused = await cy.post("/v1/responses", content=twice, headers=headers)
        unknown = await cy.post("/v1/responses", content=hidden, headers=headers)

    assert (refused.status_code, "twice" in refused.text) == (400, True)
    assert unknown.status_code == 400
    assert not [heard for heard in here.provider.heard[2:] if theirs.encode() in heard.body]


async def test_what_the_provider_made_is_the_persons_in_streams_items_files_and_containers(here: PeopleWorld):
    first, second = here.servers
    async with first.person("ada") as ada, second.person("ada") as elsewhere, second.person("cy") as cy:
        async with ada.stream("POST", "/v1/responses", json={**ASK, "stream": True}) as stream:
            events = [json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: ")]
        made = events[0]["response"]
        chain = {"previous_response_id": made["id"]}
        item = {"input": [{"type": "item_reference", "id": made["output"][0]["id"]}]}
        said = {"model": "anthropic-evil/m", "max_tokens": 9, "messages": [{"role": "user", "content": SECRET}]}
        answer = (await ada.post("/v1/messages", json=said)).json()
        call = {"type": "tool_use", "id": "t", "name": "read", "input": {"file_id": "the tool's own"}}
        again = {
            **said,
            "container": answer["container"]["id"],
            "messages": [*said["messages"], {"role": "assistant", "content": [*answer["content"], call]}],
        }
        for more in (chain, item):
            assert (await elsewhere.post("/v1/responses", json={**ASK, **more})).status_code == 200
            assert (await cy.post("/v1/responses", json={**ASK, **more})).status_code == 400
        assert (await elsewhere.post("/v1/messages", json=again)).status_code == 200
        assert json.loads(here.provider.heard[-1].body)["messages"] == again["messages"]
        assert (await cy.post("/v1/messages", json=again)).status_code == 404


async def test_a_list_shows_own_objects_alone_page_by_page_in_both_directions(tmp_path: Path):
    async with people_world(tmp_path) as here, here.servers[0].person("ada") as ada, here.servers[0].person("cy") as cy:
        own = []
        for at in range(30):
            id = await batched(ada if at % 6 == 0 else cy)
            own += [id] if at % 6 == 0 else []
        newest_first = own[::-1]

        async def listed(query: str) -> tuple[list[str], bool]:
            page = (await ada.get(f"/v1/messages/batches?{query}")).json()
            ids = [one["id"] for one in page["data"]]
            assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
            return ids, page["has_more"]

        assert await listed("limit=100") == (newest_first, False)
        assert await listed("limit=2") == (newest_first[:2], True)
        assert await listed(f"limit=2&after_id={newest_first[1]}") == (newest_first[2:4], True)
        assert await listed(f"limit=2&after_id={newest_first[3]}") == (newest_first[4:], False)
        assert await listed(f"limit=2&before_id={newest_first[4]}") == (newest_first[2:4], True)

        here.keeper.is_compressing = True
        refused = await ada.get("/v1/messages/batches")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "access_denied")


async def test_a_team_that_shares_shares_its_objects_and_keeps_those_of_before_apart(tmp_path: Path):
    async with people_world(tmp_path) as here, here.servers[0].person("ada") as ada:
        private = await stored(ada)
    kept = here.keeper
    async with people_world(tmp_path, SHARED) as later:
        later.keeper.kept.update(kept.kept)
        server = later.servers[0]
        async with server.person("ada") as ada, server.person("ben") as ben, server.person("cy") as cy:
            shared = await stored(ada)
            assert (await ada.get(f"/v1/responses/{private}")).status_code == 200
            asked = [await one.get(f"/v1/responses/{id}") for one in (ben, cy) for id in (private, shared)]

    assert [answer.status_code for answer in asked] == [404, 200, 404, 404]


async def test_while_the_store_is_away_an_answer_goes_out_and_its_object_is_no_one_elses(tmp_path: Path):
    with postgres_server.controlled() as server:
        url = postgres_server.url_of(server.url, tmp_path)
        async with people_world(tmp_path, urls=(url,), timeout_ms=2000) as here, here.servers[0].person("ada") as ada:
            await stored(ada)
            async with here.servers[0].person("cy") as cy:
                await stored(cy)
                server.stop()
                made = await stored(ada)
                away = [(await one.get(f"/v1/responses/{made}")).status_code for one in (ada, cy)]
                server.start()
                counted = here.servers[0].proxy.runtime.metrics.text()
                async with asyncio.timeout(60):
                    while (back := (await cy.get(f"/v1/responses/{made}")).status_code) == 503:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)

    assert (away, back) == ([503, 503], 404)
    assert b'stage="provider_objects"' in counted


async def test_an_object_is_the_persons_though_its_provider_did_not_look_up_what_it_refers_to(tmp_path: Path):
    async with people_world(tmp_path) as here, here.servers[0].person("ada") as ada, here.servers[0].person("cy") as cy:
        theirs = await batched(ada)
        careless = {"requests": [{"custom_id": theirs, "params": {"container": theirs}}]}
        made = (await cy.post("/v1/messages/batches", json=careless)).json()
        found = [(await one.get(f"/v1/messages/batches/{made['id']}")).status_code for one in (cy, ada)]

    assert made["requests"] == careless["requests"]
    assert theirs.encode() not in here.provider.heard[1].body.replace(f'"custom_id":"{theirs}"'.encode(), b"")
    assert found == [200, 404]
