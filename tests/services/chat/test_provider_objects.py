"""Whose key goes to a provider decides whether its objects are told apart by person."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.services.store.making import opened

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.chat.provider_objects import AnswerIds, caller_ids, given_ids, ids_in, named_in, unknown_id
from kimi_proxy.proxy.headers import Header, UpstreamRequest
from kimi_proxy.services.chat.provider_objects import OwnedObjects
from kimi_proxy.services.metrics import Metrics

SETTINGS = """
[providers.keyed]
type = "openai"
base_url = "https://api.example.org/v1"
api_key = "${KEY}"
[providers.open]
type = "openai"
base_url = "https://api.example.net/v1"
[providers.here]
type = "openai"
base_url = "http://127.0.0.1:1234/v1"
"""
CY = Caller("person/cy", "cy", is_admin=False)
PATH = "/v1/responses/resp_0123"


class Provider:
    """Says that all is well, and notes what it was asked."""

    status, encoding, is_delimited = 200, "", True
    headers: list[Header] = []  # noqa: RUF012 - never changed

    def __init__(self, answer: bytes = b"ok", media_type: str = "text/plain") -> None:
        self.asked: list[tuple[str, str]] = []
        self.media_type = media_type
        self._answer = answer

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self._answer

    @asynccontextmanager
    async def send(self, name: str, question: UpstreamRequest) -> AsyncIterator["Provider"]:
        self.asked.append((name, question.path))
        yield self


async def never(who: Caller, response_id: str) -> None:
    return None


@pytest.mark.parametrize(
    ("name", "headers", "is_told_apart"),
    [
        ("keyed", {b"authorization": b"Bearer sk-of-cy"}, True),
        ("keyed", {}, True),
        ("open", {b"authorization": b"Bearer sk-of-cy"}, False),
        ("open", {b"authorization": b"Bearer kpt_of-cy"}, True),
        ("open", {}, True),
        ("here", {b"authorization": b"Bearer sk-of-cy"}, True),
    ],
)
async def test_only_a_key_of_ones_own_at_a_provider_elsewhere_reaches_what_it_made(
    name: str, headers: dict[bytes, bytes], is_told_apart: bool, tmp_path: Path
):
    provider, notes = Provider(), list[tuple[Caller, str, str, str]]()
    async with opened(tmp_path) as store:
        client = OwnedObjects(
            *(provider, parse(SETTINGS, {"KEY": "sk-ours"}, tmp_path), store.team, Metrics()),
            *(lambda *noted: notes.append(noted), never),
        )
        question = UpstreamRequest(Wire.RESPONSES, b"", tuple(headers.items()), path=PATH, method="GET", caller=CY)
        async with client.send(name, question) as reply:
            assert [piece async for piece in reply.pieces()] == [b"ok"]

    assert (provider.asked == [(name, PATH)]) is not is_told_apart
    assert notes == ([(CY, "refuse_provider_object", "resp_0123", f"{name} GET {PATH}")] if is_told_apart else [])


async def test_an_answer_that_repeats_an_id_of_the_clients_own_choice_does_not_make_it_theirs(tmp_path: Path):
    provider = Provider(
        b'{"id": "resp_9", "output": [{"type": "message", "id": "msg_of_another"}]}', "application/json"
    )
    body = b'{"model": "m", "input": [{"role": "user", "id": "msg_of_\\u0061nother", "content": "x"}]}'
    async with opened(tmp_path) as store:
        config = parse(SETTINGS, {"KEY": "sk-ours"}, tmp_path)
        client = OwnedObjects(provider, config, store.team, Metrics(), lambda *noted: None, never)
        question = UpstreamRequest(Wire.RESPONSES, body, path="/v1/responses/compact", caller=CY)
        async with client.send("keyed", question) as reply:
            assert [piece async for piece in reply.pieces()]
        own = await store.team.own_objects("keyed", ["resp_9", "msg_of_another"], CY.scopes)

    assert own == {"resp_9"}


def test_the_clients_own_words_are_no_references():
    tool: JsonObject = {"type": "tool_use", "id": "t", "input": {"file_id": "mine", "container": "mine"}}
    schema: JsonObject = {"name": "f", "input_schema": {"properties": {"x": {"file_id": "mine"}}}}
    request: JsonObject = {"messages": [{"content": [tool]}], "tools": [schema], "metadata": {"file_id": "mine"}}
    audio: JsonObject = {"messages": [{"audio": {"id": "audio_1"}}], "input_audio": {"audio": "UklGRg=="}}

    assert ids_in(request) == frozenset()
    assert ids_in(audio) == {"audio_1"}


def test_an_answer_makes_its_items_and_files_and_only_a_new_one_makes_itself():
    said: JsonObject = {"id": "msg_1", "type": "message", "content": [{"file_id": "file_1"}]}
    answer: JsonObject = {"id": "resp_1", "output": [{"id": "rs_1", "type": "reasoning"}, said]}

    assert caller_ids(answer, AnswerIds.ALL) == {"resp_1", "rs_1", "msg_1", "file_1"}
    assert caller_ids(answer, AnswerIds.ITEMS) == {"rs_1", "file_1"}
    assert caller_ids(answer, AnswerIds.NONE) == {"file_1"}
    assert caller_ids({"response": answer}, AnswerIds.ALL, is_event=True) == {"resp_1", "rs_1", "msg_1", "file_1"}
    assert caller_ids({"id": "resp_1", "delta": "x"}, AnswerIds.ALL, is_event=True) == frozenset()


def test_every_id_in_a_request_is_one_that_the_client_gave():
    assert given_ids({"input": [{"id": "msg_1", "content": [{"id": "x"}]}], "id": 1, "text": "y"}) == {"msg_1", "x"}


@pytest.mark.parametrize(
    "raw",
    [
        b'{"file_id": "a", "file_id": "b"}',
        b'{"file_id": "a"',
        b'{"a": ' * 5000 + b'"file_id"' + b"}" * 5000,
        '{"file_id": "a"}'.encode("utf-16"),
    ],
)
def test_a_body_that_can_be_read_in_two_ways_or_in_none_is_refused(raw: bytes):
    with pytest.raises(ParseError):
        named_in(raw, has_items=False)


def test_an_unknown_id_looks_like_the_one_that_it_stands_for():
    assert unknown_id("resp_0123", "f" * 256) == "resp_" + "f" * 24
    assert unknown_id("file-" + "a" * 40, "f" * 256) == "file-" + "f" * 40
    assert unknown_id("x" * 600, "f" * 512) == "f" * 512
