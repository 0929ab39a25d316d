"""With a key that a team shares, nobody reaches what the provider keeps; with a key of one's own, they do."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.api.people_world import TEAM, people_world
from tests.support.api.proxy_world import proxy
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.evil import answering as always

from kimi_proxy.core.caller import LOCAL

CHAT = {"model": "openai-evil/m", "messages": [{"role": "user", "content": "hi"}]}
RESPONSES = {"model": "openai-evil/m", "input": [{"role": "user", "content": "hi"}], "store": False}
SPOKEN = {**CHAT, "messages": [{"role": "assistant", "audio": {"id": "audio_1"}}]}
MESSAGES = {"model": "anthropic-evil/m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}

PATHS = [
    *(("GET", "/v1/responses/resp_1"), ("DELETE", "/v1/responses/resp_1"), ("POST", "/v1/responses/resp_1/cancel")),
    *(("GET", "/v1/responses/resp_1/input_items"), ("GET", "/v1/responses/compact/input_items")),
    *(("GET", "/v1/messages/batches"), ("POST", "/v1/messages/batches"), ("GET", "/v1/messages/batches/msgbatch_1")),
    *(("GET", "/v1/files"), ("GET", "/v1/files/file-1/content"), ("POST", "/v1/uploads"), ("GET", "/v1/batches")),
    *(("GET", "/v1/audio/voices"), ("GET", "/v1/images/img_1"), ("GET", "/v1internal/operations/op_1")),
    *(("POST", "/v1internal:setCodeAssistGlobalUserSetting"), ("POST", "/v1internal:deleteUser")),
    *(("GET", "/v1internal:getCodeAssistGlobalUserSetting"), ("POST", "/v1internal:onboardUser")),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_a_path_at_which_the_provider_keeps_something_is_refused(method: str, path: str, tmp_path: Path):
    google = '[providers.google]\ntype = "gemini"\nbase_url = "http://127.0.0.1:9"\napi_key = "${PROVIDER_KEY}"\n'
    async with people_world(tmp_path, TEAM + google) as here, here.servers[0].person("ada") as ada:
        answer = await ada.request(method, path, **({"json": {}} if method == "POST" else {}))
        did = await here.servers[0].audited()

    assert answer.status_code == 403, answer.text
    assert f"{path} is refused: " in answer.text
    assert "use a key of your own" in answer.text
    assert here.provider.heard == []
    assert ("ada", "refuse_provider_object", path) in did


async def test_what_code_assist_is_first_asked_is_asked_with_the_server_s_login(tmp_path: Path):
    async with evil(always(http(b'{"currentTier":{}}'))) as google:
        base = google.url.removesuffix("/v1")
        assist = f'[providers.google]\ntype = "code-assist"\nbase_url = "{base}"\napi_key = "${{PROVIDER_KEY}}"\n'
        async with people_world(tmp_path, TEAM + assist) as here, here.servers[0].person("ada") as ada:
            loaded = await ada.post("/v1internal:loadCodeAssist", json={"metadata": {"pluginType": "GEMINI"}})

    assert loaded.json() == {"currentTier": {}}
    assert [heard.target for heard in google.heard] == ["/v1internal:loadCodeAssist"]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/v1/responses", {**RESPONSES, "previous_response_id": "resp_1"}, "previous_response_id"),
        ("/v1/responses/compact", {**RESPONSES, "previous_response_id": "resp_1"}, "previous_response_id"),
        ("/v1/responses", {**RESPONSES, "input": [{"type": "image_generation_call", "id": "ig_1"}]}, "input.id"),
        (
            "/v1/chat/completions",
            SPOKEN,
            "messages.audio.id",
        ),
        ("/v1/messages", {**MESSAGES, "container": "container_1"}, "container"),
        ("/v1/messages/count_tokens", {**MESSAGES, "container": "container_1"}, "container"),
    ],
)
async def test_a_body_that_names_a_kept_object_is_refused(
    path: str, body: Mapping[str, object], named: str, tmp_path: Path
):
    async with people_world(tmp_path) as here, here.servers[0].person("ada") as ada:
        answer = await ada.post(path, json=body)
        did = await here.servers[0].audited()

    assert answer.status_code == 403, answer.text
    assert f"{named} is refused: " in answer.text
    assert here.provider.heard == []
    assert ("ada", "refuse_provider_object", named) in did


async def test_a_form_that_names_a_kept_object_is_refused(tmp_path: Path):
    plain = {"model": (None, "openai-evil/m"), "prompt": (None, "a cat"), "image": ("a.png", b'name="file_id"')}
    async with people_world(tmp_path) as here, here.servers[0].person("ada") as ada:
        refused = await ada.post("/v1/images/edits", files={**plain, "images[][file_id]": (None, "file-1")})
        passed = await ada.post("/v1/images/edits", files=plain)

    assert refused.status_code == 403
    assert "images[][file_id] is refused: " in refused.text
    assert passed.status_code == 404  # the provider's own answer
    assert len(here.provider.heard) == 1


async def test_a_key_that_is_there_twice_hides_no_id(tmp_path: Path):
    twice = json.dumps(RESPONSES)[:-1] + ', "prompt": {"id": "p"}, "prompt": {"id": "p"}}'
    async with people_world(tmp_path) as here, here.servers[0].person("ada") as ada:
        answer = await ada.post("/v1/responses", content=twice, headers={"content-type": "application/json"})

    assert (answer.status_code, "twice" in answer.text) == (400, True)
    assert here.provider.heard == []


async def answering(heard: Heard, line: Line) -> None:
    await line.send(http(b'{"id": "resp_2", "object": "response", "output": [], "usage": null}'))


def elsewhere(provider: Evil) -> str:
    """Settings of a provider without a key that is elsewhere; all requests to it go through an HTTP proxy."""
    through = f"http://127.0.0.1:{provider.port}"
    return provider.toml(proxy=through).replace(f'base_url = "{through}', 'base_url = "http://provider.example.org')


@asynccontextmanager
async def asking(home: Path, toml: str, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of Ada's, in a team whose server has no provider's key."""
    async with proxy(home, TEAM + toml, KIMI_PROXY_TOKEN="t" * 20) as p:
        team = p.runtime.team
        assert team is not None
        p.http.headers.update({"x-kimi-proxy-token": (await team.people.add(LOCAL, "ada")).token, **headers})
        yield p.http


OWN = {"authorization": "Bearer sk-of-ada"}
CHAIN = {**RESPONSES, "previous_response_id": "resp_1"}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/responses/resp_1"), ("POST", "/v1/files"), ("GET", "/v1/batches")]
)
async def test_with_a_key_of_ones_own_it_passes(method: str, path: str, tmp_path: Path):
    async with evil(answering) as provider, asking(tmp_path, elsewhere(provider), **OWN) as ada:
        asked = await ada.post("/v1/responses", json=CHAIN)
        relayed = await ada.request(method, path)

    assert (asked.status_code, relayed.status_code) == (200, 200), asked.text
    assert json.loads(provider.heard[0].body)["previous_response_id"] == "resp_1"
    assert [heard.header("authorization") for heard in provider.heard] == ["Bearer sk-of-ada"] * 2


async def test_where_a_provider_needs_no_key_everyone_shares_its_account(tmp_path: Path):
    async with evil(answering) as provider:
        async with asking(tmp_path / "open", elsewhere(provider)) as ada:
            refused = await ada.post("/v1/responses", json=CHAIN)
        async with asking(tmp_path / "here", provider.toml(), **OWN) as ada:  # a server on this machine reads no keys
            ours = await ada.post("/v1/responses", json=CHAIN)

    assert (refused.status_code, ours.status_code) == (403, 403)
    assert provider.heard == []


async def test_without_a_team_nothing_is_refused(tmp_path: Path):
    async with evil(answering) as provider, proxy(tmp_path, provider.toml()) as p:
        asked = await p.http.post("/v1/responses", json=CHAIN)
        relayed = await p.http.get("/v1/responses/resp_1")

    assert (asked.status_code, relayed.status_code) == (200, 200)
