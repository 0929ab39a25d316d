"""The Responses API over a WebSocket, as Codex and OpenAI's library use it: on one connection request after request."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import websockets
from tests.support.api.proxy_world import proxy
from tests.support.api.responses_socket import (
    PATIENCE_S,
    ResponsesClient,
    numbered,
    responses_client,
    result,
    said,
    user,
)
from tests.support.evil import STREAM_HEAD, Heard, Line, answering, chunk, evil, http
from tests.support.model import Call, Says, events
from tests.support.processes import until
from websockets.asyncio.client import connect

from kimi_proxy.api.forms.responses_socket import ResponsesEndpoint, SocketLimits
from kimi_proxy.api.guard import Guard, Rules
from kimi_proxy.api.routing import Access, RouteTable, SocketRoute
from kimi_proxy.api.server import serve
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.services.chat.handler import ChatRequest
from kimi_proxy.services.chat.relay import Answer

CLOSED = websockets.ConnectionClosed
EVENT_STREAM = ((b"content-type", b"text/event-stream"),)


async def test_each_event_is_a_frame_as_it_would_come_over_http(tmp_path: Path):
    async with (
        evil(said(lambda _: Says("hi", (Call("c", "f", {"x": 1}),), id="r"))) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        frames = await client.ask(input=[user("hello")], metadata={"a": "b"})
        body = {"model": "m", "store": False, "input": [user("hello")], "metadata": {"a": "b"}, "stream": True}
        posted = await p.http.post("/v1/responses", json=body)

    assert frames == [json.loads(line[6:]) for line in posted.text.split("\n") if line.startswith("data: ")]
    over_socket, over_http = provider.heard
    assert json.loads(over_socket.body) == json.loads(over_http.body)
    assert [over_socket.method, over_socket.target] == ["POST", "/v1/responses"]
    assert {name for name, _ in over_socket.headers} == {
        *("host", "user-agent", "content-type", "accept-encoding", "content-length")
    }


async def test_a_request_that_goes_on_from_the_last_answer_reaches_the_provider_whole(tmp_path: Path):
    call = Says("I look. ", (Call("c1", "f"),), id="resp_1")
    async with (
        evil(said(lambda n: call if n == 1 else numbered(n))) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        await client.ask(input=[user("hello")], instructions="be brief")
        await client.ask(input=[result("c1", "done")], instructions="be brief", previous_response_id="resp_1")
        await client.ask(input="and now?", instructions="be brief", previous_response_id="resp_2")
        sessions = (await p.http.get("/api/sessions")).json()["sessions"]

    first, second, third = (heard.body for heard in provider.heard)
    asked = json.loads(third)
    assert [item.get("role") or item["type"] for item in asked["input"]] == [
        *("user", "assistant", "function_call", "function_call_output", "assistant", "user")
    ]
    assert "previous_response_id" not in asked and asked["instructions"] == "be brief"
    # What stands before the end of one request stands there in the next, byte for byte.
    for before, after in ((first, second), (second, third)):
        start, end = before.index(b'"input":['), before.rindex(b"]")
        assert after[after.index(b'"input":[') :].startswith(before[start:end])
    assert len(sessions) == 1


async def test_a_request_for_no_answer_costs_nothing_and_is_gone_on_from(tmp_path: Path):
    async with (
        evil(said(numbered)) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        created, completed = await client.ask(input=[user("rules")], generate=False)
        heard_before = len(provider.heard)
        await client.ask(input=[user("hello")], previous_response_id=created["response"]["id"])

    assert (created["type"], completed["response"]["status"], heard_before) == ("response.created", "completed", 0)
    (heard,) = provider.heard
    assert json.loads(heard.body)["input"] == [user("rules"), user("hello")]
    assert "generate" not in json.loads(heard.body)


async def test_what_codex_says_of_a_request_in_its_body_is_in_headers_for_the_provider(tmp_path: Path):
    metadata = {
        "x-codex-turn-metadata": '{"turn":1}',
        "ws_request_header_x_openai_internal_codex_responses_lite": "true",
        "x-codex-ws-stream-request-start-ms": "1",
        "x-codex-evil": "a\r\nx-api-key: b",
        "authorization": "Bearer of-another",
        "session_id": "s",
    }
    shaken = {"OpenAI-Beta": "responses_websockets=2026-02-06", "x-codex-turn-metadata": "{}", "Authorization": "B x"}
    async with (
        evil(said(numbered)) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port, headers=shaken) as client,
    ):
        await client.ask(input="hello", client_metadata=metadata)

    (heard,) = provider.heard
    named = {name: value for name, value in heard.headers if name.startswith(("x-", "openai", "auth", "session"))}
    assert named == {
        "authorization": "B x",
        "x-codex-turn-metadata": '{"turn":1}',
        "x-openai-internal-codex-responses-lite": "true",
    }


async def test_what_codex_reads_in_headers_of_an_answer_comes_as_events(tmp_path: Path):
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nx-other: 1\r\n"
        b"x-codex-turn-state: abc\r\nx-codex-primary-used-percent: 12.5\r\nx-codex-primary-window-minutes: 300\r\n\r\n"
    )
    pieces = [head, *map(chunk, events(Wire.RESPONSES, numbered(1))), b"0\r\n\r\n"]
    async with (
        evil(answering(*pieces)) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        first, second, third, *rest = await client.ask(input="hello")

    named = {
        "x-codex-turn-state": "abc",
        "x-codex-primary-used-percent": "12.5",
        "x-codex-primary-window-minutes": "300",
    }
    assert (first, second) == (
        {"type": "response.metadata", "headers": named},
        {"type": "codex.response.metadata", "headers": named},
    )
    primary = {"used_percent": 12.5, "window_minutes": 300}
    assert third == {"type": "codex.rate_limits", "rate_limits": {"primary": primary, "secondary": None}}
    assert rest[-1]["type"] == "response.completed"


@pytest.mark.parametrize("store", [None, True])
async def test_an_unknown_answer_that_may_be_stored_is_the_provider_s_to_find(store: bool | None, tmp_path: Path):
    error = {"error": {"message": "no", "type": "invalid_request_error", "code": "previous_response_not_found"}}
    async with (
        evil(answering(http(json.dumps(error).encode(), "400 Bad Request"))) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        (frame,) = await client.ask(input="go on", previous_response_id="resp_x", store=store)

    assert (frame["status"], frame["error"]) == (400, error["error"])
    (heard,) = provider.heard
    assert json.loads(heard.body)["previous_response_id"] == "resp_x"


async def test_an_unknown_answer_that_is_not_stored_is_refused_in_the_api_s_own_words(tmp_path: Path):
    async with (
        evil(said(numbered)) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        (refused,) = await client.ask(input="go on", previous_response_id="resp_9")
        answered = await client.ask(input="all of it")

    assert (refused["status"], refused["error"]["code"]) == (400, "previous_response_not_found")
    assert answered[-1]["type"] == "response.completed"
    assert len(provider.heard) == 1


async def test_a_provider_s_error_comes_with_its_status_and_headers(tmp_path: Path):
    limit = http(b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}', "429 Too Many Requests")
    limit = limit.replace(b"\r\n\r\n", b"\r\nRetry-After: 7\r\n\r\n", 1)
    async with (
        evil(answering(limit)) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        (frame,) = await client.ask(input="hello")
        (again,) = await client.ask(input="hello")

    assert (frame["status"], frame["error"]["code"], frame["headers"]["retry-after"]) == (
        *(429, "rate_limit_exceeded"),
        "7",
    )
    assert again == frame, "the connection stays open"


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        ("{", "JSON"),
        ("[]", "JSON"),
        ('{"type":"response.steer"}', "type"),
        ('{"type":"response.create","input":"x"}', "model"),
        ('{"type":"response.create","model":"m","input":7}', "input"),
        ('{"type":"response.create","model":"m","input":"x","stream_id":"a"}', "stream_id"),
        (b'{"type":"response.create","model":"m"}', "text"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_stays(frame: str | bytes, field: str, tmp_path: Path):
    async with (
        evil(said(numbered)) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        await client.socket.send(frame)
        (refused,) = await client.answer()
        answered = await client.ask(input="hello")

    assert refused["status"] == 400 and field in str(refused["error"]["message"])
    assert answered[-1]["type"] == "response.completed"


async def test_requests_that_are_sent_ahead_are_answered_in_turn(tmp_path: Path):
    async with (
        evil(said(numbered)) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        for number in range(3):
            await client.send(input=f"question {number}")
        answers = [(await client.answer())[-1]["response"]["id"] for _ in range(3)]

    assert answers == ["resp_1", "resp_2", "resp_3"]
    assert [json.loads(heard.body)["input"][0]["content"][0]["text"] for heard in provider.heard] == [
        f"question {number}" for number in range(3)
    ]


async def test_a_long_request_in_many_pieces_is_taken_and_one_beyond_the_limits_is_not(tmp_path: Path):
    async with (
        evil(said(numbered)) as provider,
        proxy(tmp_path, provider.toml() + "[access]\nmax_body_bytes = 3000000\n") as p,
        responses_client(p.port) as client,
    ):
        text = json.dumps({"type": "response.create", "model": "m", "input": "x" * 2_000_000})
        await client.socket.send(text[at : at + 1000] for at in range(0, len(text), 1000))
        answered = await client.answer()
        with pytest.raises(CLOSED):
            await client.ask(input="x" * 3_000_001)
        async with responses_client(p.port) as other:
            await other.socket.send('{"type":"response.create","model":"m","input":[%s1]}' % ("1," * 250_000))
            came = [frame async for frame in until_closed(other)]

    assert answered[-1]["type"] == "response.completed"
    assert (client.socket.close_code, other.socket.close_code, came) == (1009, 1009, []), "Codex POSTs upon that"
    assert len(provider.heard) == 1


async def test_the_model_reads_back_what_was_cut_and_the_client_sees_nothing_of_it(tmp_path: Path):
    log = "\n".join(f"line {n} of a long log that nobody asked for" for n in range(4000))

    def answers(number: int) -> Says:
        if number == 1:
            return Says("", (Call("c1", "shell"),), id="resp_1")
        return numbered(number)

    asked: list[bytes] = []
    script = said(answers)

    async def model(heard: Heard, line: Line) -> None:
        asked.append(heard.body)
        cut = heard.body.partition(b"prune_id=")[2][:20].decode()
        if len(asked) == 2:
            own = Call("own", "recover_text", {"id": cut, "start": 2, "end": 3})
            await line.stream(*events(Wire.RESPONSES, Says("Hm. ", (own,), id="resp_2")))
        else:
            await script(heard, line)

    tools = [{"type": "function", "name": "shell", "parameters": {"type": "object"}}]
    toml = '[sanitizer]\nbudget_ms = 60000\npolicy = "deep"\n'
    async with (
        evil(model) as provider,
        proxy(tmp_path, provider.toml() + toml) as p,
        responses_client(p.port) as client,
    ):
        await client.ask(input=[user("why?")], tools=tools)
        frames = await client.ask(input=[result("c1", log)], tools=tools, previous_response_id="resp_1")
        await client.ask(input=[user("go on")], tools=tools, previous_response_id=frames[-1]["response"]["id"])

    assert b"line 2 of a long log" in asked[2], "it was read back"
    assert "recover_text" not in json.dumps(frames)
    assert asked[3].startswith(asked[1][: asked[1].rindex(b"],")].partition(b',"tools"')[0][:-1]), (
        "as it was cut before"
    )
    assert b"recover_text" not in asked[3].partition(b'"tools"')[0]


async def test_a_provider_of_another_api_answers_too(tmp_path: Path):
    async def model(heard: Heard, line: Line) -> None:
        await line.stream(*events(Wire.CHAT, Says("hi", id="x")))

    async with (
        evil(model) as provider,
        proxy(tmp_path, provider.toml(translate=["messages", "responses"])) as p,
        responses_client(p.port) as client,
    ):
        first = await client.ask(input=[user("hello")])
        await client.ask(input=[user("more")], previous_response_id=first[-1]["response"]["id"])

    roles = [[message["role"] for message in json.loads(heard.body)["messages"]] for heard in provider.heard]
    assert roles == [["user"], ["user", "assistant", "user"]]


# Faults


async def test_a_stream_that_is_cut_at_any_event_closes_the_connection_without_an_end(tmp_path: Path):
    whole = events(Wire.RESPONSES, Says("a b", id="r"))
    kinds, cut = [json.loads(event.split(b"data: ")[1])["type"] for event in whole], len(whole)

    async def model(heard: Heard, line: Line) -> None:
        await line.stream(*whole[:cut], ends=cut == len(whole))
        if cut < len(whole):
            line.reset()

    async with evil(model) as provider, proxy(tmp_path, provider.toml()) as p:
        for cut in range(len(whole)):
            async with responses_client(p.port) as client:
                await client.send(input="hello")
                came = [json.loads(frame)["type"] async for frame in until_closed(client)]
            assert client.socket.close_code == 1011, cut
            assert came[:-1] == kinds[: len(came) - 1] and came[-1] == "error", cut
        cut = len(whole)
        async with responses_client(p.port) as client:
            answered = await client.ask(input="hello")

    assert [event["type"] for event in answered] == kinds


async def until_closed(client: ResponsesClient) -> AsyncIterator[str | bytes]:
    with suppress(CLOSED):
        while True:
            yield await asyncio.wait_for(client.socket.recv(), PATIENCE_S)


async def test_a_stream_that_ends_early_and_in_order_closes_the_connection_too(tmp_path: Path):
    whole = events(Wire.RESPONSES, numbered(1))[:-1]
    async with (
        evil(answering(STREAM_HEAD, *map(chunk, whole), b"0\r\n\r\n")) as provider,
        proxy(tmp_path, provider.toml()) as p,
        responses_client(p.port) as client,
    ):
        with pytest.raises(CLOSED) as closed:
            await client.ask(input="hello")

    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1011


@pytest.mark.parametrize("ending", ["close", "abort"])
async def test_the_provider_is_left_at_once_when_the_client_hangs_up(ending: str, tmp_path: Path):
    async def model(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, chunk(events(Wire.RESPONSES, numbered(1))[0]))
        await line.until_left()

    async with evil(model) as provider, proxy(tmp_path, provider.toml()) as p:
        async with responses_client(p.port) as client:
            await client.send(input="hello")
            await client.socket.recv()
            await (client.socket.close() if ending == "close" else abort(client))
            await until(lambda: len(provider.left_at) == 1)
        counted = p.runtime.metrics.text().decode()

    assert 'outcome="client_gone"' in counted


async def abort(client: ResponsesClient) -> None:
    client.socket.transport.abort()


async def test_an_answer_in_work_ends_before_the_server_stops_and_idle_connections_do_not_wait(tmp_path: Path):
    goes_on = asyncio.Event()
    whole = events(Wire.RESPONSES, numbered(1))

    async def model(heard: Heard, line: Line) -> None:
        await line.send(STREAM_HEAD, chunk(whole[0]))
        await goes_on.wait()
        await line.send(*map(chunk, whole[1:]), b"0\r\n\r\n")

    async with evil(model) as provider:
        world = proxy(tmp_path, provider.toml() + "[shutdown]\ndrain_s = 30\n")
        p = await world.__aenter__()
        async with responses_client(p.port) as client, responses_client(p.port) as idle:
            await client.send(input="hello")
            first = json.loads(await client.socket.recv())
            stopping = asyncio.create_task(world.__aexit__(None, None, None))
            await asyncio.wait_for(idle.socket.wait_closed(), PATIENCE_S)
            goes_on.set()
            rest = await client.answer()
            await asyncio.wait_for(client.socket.wait_closed(), PATIENCE_S)
            await asyncio.wait_for(stopping, PATIENCE_S)

    assert first["type"] == "response.created" and rest[-1]["type"] == "response.completed"
    assert (idle.socket.close_code, client.socket.close_code) == (1012, 1012)


# With an answer of ours instead of a provider's


ENDED = b'data: {"type":"response.completed","response":{"id":"r"}}\n\n'


async def ended() -> AsyncIterator[bytes]:
    yield ENDED


@asynccontextmanager
async def sockets(
    pieces: Callable[[], AsyncIterator[bytes]] = ended,
    limits: SocketLimits = SocketLimits(),  # noqa: B008 - it is frozen
    rules: Rules = Rules(),  # noqa: B008 - it is frozen
    room: int = 10_000_000,
) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Serve sockets whose every request is answered by `pieces`; the event is set once an answer is over."""
    over, stop = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def ask(request: ChatRequest) -> AsyncIterator[Answer]:
        try:
            yield Answer(200, EVENT_STREAM, b"", pieces())
        finally:
            over.set()

    table = RouteTable([SocketRoute("/v1/responses", ResponsesEndpoint(ask, rules, limits).serve, Access.PEOPLE)])
    app = Guard(table, rules, access=table.access, room=room)
    ports: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    listening = asyncio.create_task(
        serve(app, "127.0.0.1", 0, stop=stop, token=True, on_ready=lambda _, port: ports.set_result(port))
    )
    try:
        yield await ports, over
    finally:
        stop.set()
        await listening


async def test_a_client_that_stops_reading_is_dropped():
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b'data: {"type":"x","text":"%b"}\n\n' % (b"x" * 10_000)
            await asyncio.sleep(0)

    async with sockets(endless, SocketLimits(stall_s=0.2)) as (port, over):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
        head = f"GET /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        writer.write(f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        asked = b'{"type":"response.create","model":"m"}'
        writer.write(b"\x81" + bytes([0x80 | len(asked)]) + b"\0\0\0\0" + asked)
        await asyncio.wait_for(over.wait(), PATIENCE_S)
        writer.close()


async def test_a_client_whose_token_is_revoked_is_disconnected_before_its_next_request():
    known = Caller("ada", "ada")

    async def identify(headers: object) -> Caller | None:
        return known

    async with sockets(rules=Rules(identify=identify)) as (port, _), responses_client(port) as client:
        await client.ask(input="hello")
        known = Caller("ben", "ben")
        with pytest.raises(CLOSED) as closed:
            await client.ask(input="hello")

    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008


async def test_a_conversation_is_forgotten_where_keeping_it_would_leave_no_room():
    async with sockets(rules=Rules(max_body_bytes=3000), room=4000) as (port, _), responses_client(port) as client:
        await client.ask(input="x" * 1000)
        (refused,) = await client.ask(input="more", previous_response_id="r")
        await client.ask(input="x")
        kept = await client.ask(input="more", previous_response_id="r")

    assert (refused["status"], refused["error"]["code"]) == (400, "previous_response_not_found")
    assert kept[-1]["type"] == "response.completed"


async def test_a_conversation_that_grows_longer_than_a_body_may_be_is_refused_as_a_body_is():
    async with sockets(rules=Rules(max_body_bytes=3000)) as (port, _), responses_client(port) as client:
        await client.ask(input="x" * 2000)
        (refused,) = await client.ask(input="y" * 2000, previous_response_id="r")
        shorter = await client.ask(input="y", previous_response_id="r")

    assert (refused["status"], refused["error"]["code"]) == (413, "body_too_large")
    assert shorter[-1]["type"] == "response.completed"


async def test_requests_that_do_not_all_fit_are_refused_until_there_is_room():
    goes_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        await goes_on.wait()
        yield ENDED

    async with (
        sockets(slow, rules=Rules(max_body_bytes=3000), room=4000) as (port, _),
        responses_client(port) as client,
        responses_client(port) as other,
    ):
        await client.send(input="x" * 1000)
        await asyncio.sleep(0)
        (refused,) = await other.ask(input="y" * 1200)
        goes_on.set()
        first = await client.answer()
        again = await other.ask(input="y" * 1200)

    assert (refused["status"], refused["error"]["code"], refused["headers"]) == (503, "crowded", {"retry-after": "1"})
    assert first[-1]["type"] == again[-1]["type"] == "response.completed"


# Access


async def test_a_connection_is_refused_as_a_request_is(tmp_path: Path):
    async with (
        evil(said(numbered)) as provider,
        proxy(tmp_path, provider.toml(), KIMI_PROXY_TOKEN="a-token-of-sixteen") as p,
    ):
        url = f"ws://127.0.0.1:{p.port}/v1/responses"
        token = {"Authorization": "Bearer a-token-of-sixteen"}
        statuses = [
            await refusal_of(url, {}),
            await refusal_of(url, {**token, "Origin": "http://evil.example"}),
            await refusal_of(url, {**token, "Host": "evil.example"}),
        ]
        async with responses_client(p.port, headers=token) as client:
            answered = await client.ask(input="hello")

    assert statuses == [401, 403, 421]
    assert answered[-1]["type"] == "response.completed"


async def refusal_of(url: str, headers: dict[str, str]) -> int:
    with pytest.raises(websockets.InvalidStatus) as refused:
        await connect(url, proxy=None, additional_headers=headers)
    return refused.value.response.status_code


async def test_further_clients_post_where_many_are_connected():
    async with sockets(limits=SocketLimits(sockets=1)) as (port, _), responses_client(port):
        status = await refusal_of(f"ws://127.0.0.1:{port}/v1/responses", {})

    assert status == 426


async def test_a_connection_without_a_request_is_closed_after_a_while():
    async with sockets(limits=SocketLimits(idle_s=0.1)) as (port, _), responses_client(port) as client:
        await asyncio.wait_for(client.socket.wait_closed(), PATIENCE_S)

    assert client.socket.close_code == 1001
