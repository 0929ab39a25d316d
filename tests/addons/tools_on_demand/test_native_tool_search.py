"""Where the provider loads tools by itself, the model finds them by our search, and the client sees none of it.

No real provider was asked: the forms are those of platform.claude.com (tool search tool, custom implementation) and of
developers.openai.com (tool search, executed by the client).
"""

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.conversations import Assistant, Item, Result, User
from tests.support.conversations import Call as Asked
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.model import Call, Says, events
from tests.support.model import body as model_body
from tests.support.services.chat.deferral import CORE, CREATE, RARE, ask, body

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.chat.prompt_cache import digests, first_difference

PROVIDERS = {Wire.MESSAGES: ("anthropic", "claude-opus-5"), Wire.RESPONSES: ("openai", "gpt-5.4")}
WIRES = pytest.mark.parametrize("wire", list(PROVIDERS))
STREAM = pytest.mark.parametrize("stream", [True, False])
OPTIONS: dict[Wire, JsonObject] = {Wire.RESPONSES: {"store": False}, Wire.MESSAGES: {}, Wire.CHAT: {}}
ON = '[deferred_tools]\nclients = ["*"]\n'


class Searching:
    """A provider that loads tools: its models search in its own words."""

    def __init__(self, wire: Wire, says: Sequence[Says], refuses: bool = False) -> None:
        self.wire = wire
        self.says = says
        self.refuses = refuses
        self.is_too_long = b""  # a request that holds this is refused, whatever tools it has
        self.requests: list[bytes] = []
        self.betas: list[str] = []

    async def __call__(self, heard: Heard, line: Line) -> None:
        self.requests.append(heard.body)
        self.betas.append(heard.header("anthropic-beta") or "")
        if self.is_too_long and self.is_too_long in heard.body:
            await line.send(http(b'{"error":{"message":"prompt is too long"}}', "400 Bad Request"))
            return
        if self.refuses and b'"defer_loading":true' in heard.body:
            await line.send(http(b'{"error":{"message":"tools.2.defer_loading: extra inputs"}}', "400 Bad Request"))
            return
        answered = [raw for raw in self.requests if not (self.refuses and b'"defer_loading":true' in raw)]
        says = self.says[min(len(answered), len(self.says)) - 1]
        if json.loads(heard.body).get("stream"):
            await line.stream(*(_as_search(raw) for raw in events(self.wire, says) if not _is_delta_of_search(raw)))
        else:
            await line.send(http(_as_search(model_body(self.wire, says))))


FUNCTION = b'"call_id": "own_1", "name": "find_tools", "status": "completed", "arguments": '
SEARCH = b'"call_id": "own_1", "execution": "client", "status": "completed", "arguments": '
QUERY = b'{"query": "create an issue"}'


def _is_delta_of_search(raw: bytes) -> bool:
    return b"function_call_arguments" in raw and b"fc_own_1" in raw


def _as_search(raw: bytes) -> bytes:
    """Return what the model says as Responses have it: a search is an item of its own kind."""
    head = b'"id": "fc_own_1", "type": "function_call", '
    if head not in raw:
        return raw
    item = b'"id": "fc_own_1", "type": "tool_search_call", ' + SEARCH
    written = json.dumps(QUERY.decode().replace(": ", ":")).encode()
    return raw.replace(head + FUNCTION + written, item + QUERY).replace(head + FUNCTION + b'""', item + b"{}")


FINDING = Says("Hm.", (Call("own_1", "find_tools", {"query": "create an issue"}),))
CREATING = Says("Here.", (Call("call_u1", RARE[0], CREATE),))


def world(home: Path, provider: Evil, kind: str, name: str, model: str) -> AbstractAsyncContextManager[Runtime]:
    toml = f'[providers.{name}]\ntype = "{kind}"\nbase_url = "{provider.url}"\napi_key = ""\n{ON}'
    return running(parse_config(f'{toml}[models."{model}"]\nprovider = "{name}"\n', {}, home))


def marked(request: Request) -> set[str]:
    tools = json.loads(request.body)["tools"]
    return {str(tool["name"]) for tool in tools if tool.get("defer_loading") is True}


@WIRES
@STREAM
async def test_the_provider_loads_what_the_model_finds_and_the_client_sees_only_the_call(
    tmp_path: Path, wire: Wire, stream: bool
):
    kind, model = PROVIDERS[wire]
    provider = Searching(wire, [FINDING, CREATING, Says("Done.")])
    items: list[Item] = [User("Please file a ticket")]
    later = [*items, Assistant("Here.", (Asked("call_u1", RARE[0], CREATE),)), Result("call_u1", "filed")]
    more = [*later, Assistant("", (Asked("call_u2", RARE[0], CREATE),)), Result("call_u2", "filed again")]
    async with evil(provider) as upstream, world(tmp_path, upstream, kind, kind, model) as runtime:
        answer = await ask(runtime, wire, body(wire, items, stream, model=model, **OPTIONS[wire]))
        for each in (later, more):
            await ask(runtime, wire, body(wire, each, stream, model=model, **OPTIONS[wire]))

    first, again, *rest = (parse(raw, wire) for raw in provider.requests)
    assert b"find_tools" not in answer and b"tool_search" not in answer and RARE[0].encode() in answer
    assert marked(first) == set(RARE) and set(first.tool_names) > {*CORE, *RARE}
    found = json.loads(again.body)[wire.format.conversation][-1]
    if wire is Wire.MESSAGES:
        (block,) = found["content"]
        assert block["content"][0] == {"type": "tool_reference", "tool_name": RARE[0]}
        assert set(provider.betas) == {"advanced-tool-use-2025-11-20"}
    else:
        assert (found["type"], found["call_id"], found["execution"]) == ("tool_search_output", "own_1", "client")
        assert found["tools"][0]["name"] == RARE[0] and found["tools"][0]["defer_loading"] is True
    # The history has the search before the first call, in the same bytes in every request.
    for before, now in pairwise([first, *rest]):
        assert first_difference(digests(before), digests(now)) is None
    said = rest[-1].body
    assert said.count(b"srch_") == 2 and said.index(b"srch_") < said.index(b"call_u1")
    assert b"inputSchema" not in said and b"use_tool" not in said


@pytest.mark.parametrize(
    ("wire", "kind", "name", "model"),
    [
        (Wire.MESSAGES, "anthropic", "anthropic", "claude-haiku-4-5"),
        (Wire.MESSAGES, "anthropic", "elsewhere", "claude-opus-5"),
        (Wire.RESPONSES, "openai", "openai", "gpt-5.3"),
        (Wire.CHAT, "openai", "openai", "gpt-5.4"),
    ],
)
async def test_other_models_and_providers_get_two_tools_of_ours(
    tmp_path: Path, wire: Wire, kind: str, name: str, model: str
):
    provider = Searching(wire, [Says("ok")])
    async with evil(provider) as upstream, world(tmp_path, upstream, kind, name, model) as runtime:
        await ask(runtime, wire, body(wire, [User("go")], model=model, **OPTIONS[wire]))

    (request,) = (parse(raw, wire) for raw in provider.requests)
    assert b"defer_loading" not in request.body and {"find_tools", "use_tool"} <= set(request.tool_names)


@WIRES
@STREAM
async def test_a_provider_that_refuses_is_asked_again_with_tools_of_ours(tmp_path: Path, wire: Wire, stream: bool):
    kind, model = PROVIDERS[wire]
    using = Call("call_u1", "use_tool", {"name": RARE[0], "arguments": CREATE})
    provider = Searching(wire, [Says("Here.", (using,)), Says("ok")], refuses=True)
    async with evil(provider) as upstream, world(tmp_path, upstream, kind, kind, model) as runtime:
        answer = await ask(runtime, wire, body(wire, [User("go")], stream, model=model, **OPTIONS[wire]))
        await ask(runtime, wire, body(wire, [User("another")], stream, model=model, **OPTIONS[wire]))

    refused, again, next_one = (parse(raw, wire) for raw in provider.requests)
    assert marked(refused) == set(RARE)
    assert marked(again) == marked(next_one) == set()
    assert "use_tool" in again.tool_names and "use_tool" in next_one.tool_names
    assert RARE[0].encode() in answer and b"use_tool" not in answer


@WIRES
async def test_a_request_that_is_wrong_in_itself_turns_the_providers_search_off_for_nobody(tmp_path: Path, wire: Wire):
    kind, model = PROVIDERS[wire]
    provider = Searching(wire, [Says("ok")])
    provider.is_too_long = b"too long"
    async with evil(provider) as upstream, world(tmp_path, upstream, kind, kind, model) as runtime:
        first: list[Item] = [User("go")]
        await ask(runtime, wire, body(wire, first, model=model, **OPTIONS[wire]))
        with pytest.raises(AssertionError):
            await ask(runtime, wire, body(wire, [User("this is too long")], model=model, **OPTIONS[wire]))
        await ask(runtime, wire, body(wire, [User("another")], model=model, **OPTIONS[wire]))

    began, *_, another = (parse(raw, wire) for raw in provider.requests)
    assert marked(another) == marked(began) == set(RARE)


async def test_a_refusal_elsewhere_changes_no_conversation_that_has_the_providers_search(tmp_path: Path):
    """OpenAI caches without marks: the conversation is warm."""
    wire = Wire.RESPONSES
    kind, model = PROVIDERS[wire]
    provider = Searching(wire, [Says("ok")])
    async with evil(provider) as upstream, world(tmp_path, upstream, kind, kind, model) as runtime:
        first: list[Item] = [User("go")]
        await ask(runtime, wire, body(wire, first, model=model, **OPTIONS[wire]))
        provider.refuses = True
        await ask(runtime, wire, body(wire, [User("another")], model=model, **OPTIONS[wire]))
        provider.refuses = False
        await ask(runtime, wire, body(wire, [*first, Assistant("ok"), User("on")], model=model, **OPTIONS[wire]))
        await ask(runtime, wire, body(wire, [User("a third")], model=model, **OPTIONS[wire]))

    began, _, _, goes_on, third = (parse(raw, wire) for raw in provider.requests)
    assert marked(goes_on) == marked(began) == set(RARE)
    assert marked(third) == set()


@WIRES
async def test_what_the_provider_does_not_read_is_not_counted(tmp_path: Path, wire: Wire):
    kind, model = PROVIDERS[wire]
    provider = Searching(wire, [Says("ok")])
    async with evil(provider) as upstream, world(tmp_path, upstream, kind, kind, model) as runtime:
        raw = body(wire, [User("go")], model=model, **OPTIONS[wire])
        await ask(runtime, wire, raw)
        (session,), _ = await runtime.sessions.page(LOCAL, 1, None)
        shown = await runtime.latest_requests.context(LOCAL, session.id)

    left_out = {one["name"]: one["left_out"] for one in shown["described_tools"]}
    assert left_out == {"tickets": len(RARE), "bash": 0, "read_file": 0}
    assert shown["apart"]["tool_definitions_tokens"] < len(raw) / 16


async def test_where_the_provider_stores_its_answers_two_tools_of_ours_are_used(tmp_path: Path):
    kind, model = PROVIDERS[Wire.RESPONSES]
    provider = Searching(Wire.RESPONSES, [Says("ok")])
    async with evil(provider) as upstream, world(tmp_path, upstream, kind, kind, model) as runtime:
        await ask(runtime, Wire.RESPONSES, body(Wire.RESPONSES, [User("go")], model=model))

    assert b"defer_loading" not in provider.requests[0] and b'"use_tool"' in provider.requests[0]
