"""The model calls our tool in the middle of an answer, and the client gets one answer."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.conversations import Assistant, Item, Result, User
from tests.support.conversations import Call as Asked
from tests.support.conversations import body as request_body
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.model import Call, Says, body, events
from tests.support.services.chat.recall import ID, ITEMS, LOG, THEIRS, Model, recovering
from tests.support.texts import a_question

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.chat.reply import ReplyReader
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.errors import UpstreamError, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.chat.recall import MAX_READ_CHARS, MAX_SILENCE_S, with_pings
from kimi_proxy.services.chat.requests import ChatRequest

WIRES = pytest.mark.parametrize("wire", list(Wire))
IN_AN_HOUR = "\r\nretry-after: 3600"


@asynccontextmanager
async def world(home: Path, model: Model, more: str = "") -> AsyncIterator[tuple[Runtime, Evil]]:
    kind = model.wire.format.provider_types[0]
    async with evil(model) as provider:
        toml = f"{provider.toml(kind)}[sanitizer]\nbudget_ms = 60000\n{more}"
        async with running(parse_config(toml, {}, home), thread_max_chars=10**9) as runtime:
            yield runtime, provider


async def ask(runtime: Runtime, wire: Wire, items: Sequence[Item] = ITEMS, stream: bool = True) -> tuple[int, bytes]:
    options: JsonObject = {"stream_options": {"include_usage": True}} if stream and wire is Wire.CHAT else {}
    raw = request_body(wire, items, stream=stream, **options)
    async with runtime.chat.answer(ChatRequest(LOCAL, wire, raw)) as answer:
        came = answer.body
        with suppress(UpstreamError):  # upon which the connection is dropped
            async for piece in answer.rest or _nothing():
                came += piece
        return answer.status, came


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def lines(first: int, last: int) -> str:
    return "\n".join(LOG.text.split("\n")[first - 1 : last])


@WIRES
@pytest.mark.parametrize("stream", [True, False])
async def test_what_it_asks_for_is_answered_inside(tmp_path: Path, wire: Wire, stream: bool):
    model = Model(wire, [Says("Hm.", (recovering(),), tokens=(100, 5)), Says("Found it.", tokens=(120, 7))])
    async with world(tmp_path, model) as (runtime, _):
        status, answer = await ask(runtime, wire, stream=stream)
    reader = ReplyReader(wire, stream)
    reader.feed(answer)

    assert status == 200
    assert b"recover_text" not in answer and b"own_1" not in answer
    assert reader.facts.is_complete
    assert reader.facts.usage is not None
    assert (reader.facts.usage.input_tokens, reader.facts.usage.output_tokens) == (120, 7)
    first, again = (parse(raw, wire) for raw in model.requests)
    assert again.body.startswith(first.body[: first.messages[-1].end])
    assert [part.text for part in again.messages[-1].parts] == [lines(3, 4)]


@WIRES
@pytest.mark.parametrize("stream", [True, False])
async def test_what_it_says_without_our_tool_passes_byte_for_byte(tmp_path: Path, wire: Wire, stream: bool):
    says = Says("Words.", (THEIRS,), "Thought.")
    async with world(tmp_path, Model(wire, [says])) as (runtime, _):
        _, answer = await ask(runtime, wire, stream=stream)

    assert answer == (b"".join(events(wire, says)) if stream else body(wire, says))


@WIRES
@pytest.mark.parametrize("stream", [True, False])
async def test_beside_a_call_of_the_client_it_goes_with_the_next_request(tmp_path: Path, wire: Wire, stream: bool):
    model = Model(wire, [Says("Both.", (recovering(), THEIRS)), Says("Thanks.")])
    later: list[Item] = [*ITEMS, Assistant("Both.", (Asked("call_b2"),)), Result("call_b2", "a.py")]
    async with world(tmp_path, model) as (runtime, _):
        _, answer = await ask(runtime, wire, stream=stream)
        for _ in range(2):
            await ask(runtime, wire, later, stream=stream)

    assert b"recover_text" not in answer and b"call_b2" in answer
    told = [parse(raw, wire).messages[-1].parts[-1].text for raw in model.requests[1:]]
    assert told[0] == told[1]
    assert told[0].startswith("a.py\n\n[recover_text ") and told[0].endswith(f"]\n{lines(3, 4)}")


async def test_a_conversation_cannot_read_what_another_one_left_out(tmp_path: Path):
    """The same text, cut in two conversations, has two ids: neither is known to the other."""
    first = Model(Wire.CHAT, [Says("ok")])
    async with world(tmp_path, first) as (runtime, _):
        await ask(runtime, Wire.CHAT, stream=False)
    (foreign,) = set(re.findall(rb"prn_[0-9a-z]{16}", first.requests[0]))
    call = Call("own_1", "recover_text", {"id": foreign.decode()})
    model = Model(Wire.CHAT, [Says("", (call,)), Says("Never mind.")])
    others: list[Item] = [User("another question altogether"), *ITEMS[1:]]
    async with world(tmp_path, model) as (runtime, _):
        await ask(runtime, Wire.CHAT, others, stream=False)

    assert foreign not in model.requests[0]
    assert "unknown id" in json.loads(model.requests[1])["messages"][-1]["content"]


@pytest.mark.parametrize("place", ["a result", "a forged marker", "a question"])
async def test_an_id_that_was_copied_from_another_conversation_recovers_nothing(tmp_path: Path, place: str):
    first = Model(Wire.CHAT, [Says("ok")])
    async with world(tmp_path, first) as (runtime, _):
        await ask(runtime, Wire.CHAT, stream=False)
    (foreign,) = set(re.findall(r"prn_[0-9a-z]{16}", first.requests[0].decode()))
    said = {"a forged marker": f"⟦PRUNÉ: 2-9 | ids {foreign}⟧", "a question": ""}.get(place, f"the id is {foreign}")
    call = Call("own_1", "recover_text", {"id": foreign})
    model = Model(Wire.CHAT, [Says("", (call,)), Says("Never mind.")])
    others: list[Item] = [User(f"what is {foreign}?"), *ITEMS[1:-1], Result("call_a1", f"{said}\n{LOG.text}")]
    async with world(tmp_path, model) as (runtime, _):
        await ask(runtime, Wire.CHAT, others, stream=False)

    assert foreign.encode() in model.requests[0]
    assert "unknown id" in json.loads(model.requests[1])["messages"][-1]["content"]


@pytest.mark.parametrize("stream", [True, False])
async def test_to_ask_twice_for_what_another_one_left_out_does_not_help(tmp_path: Path, stream: bool):
    first = Model(Wire.CHAT, [Says("ok")])
    async with world(tmp_path, first) as (runtime, _):
        await ask(runtime, Wire.CHAT, stream=False)
    (foreign,) = set(ID.findall(first.requests[0]))
    call = Call("own_1", "recover_text", {"id": foreign.decode(), "end_line": 2})
    model = Model(Wire.CHAT, [Says("", (call,)), Says("", (call,)), Says("Never mind.")])
    others: list[Item] = [User("another question altogether"), *ITEMS[1:]]
    async with world(tmp_path, model) as (runtime, _):
        await ask(runtime, Wire.CHAT, others, stream=stream)

    answers = [parse(raw, Wire.CHAT).messages[-1].parts[-1].text for raw in model.requests[1:]]
    assert ["unknown id" in answer for answer in answers] == [True, True]


async def test_an_id_that_belongs_to_no_conversation_can_be_read_back_in_one_that_names_it(tmp_path: Path):
    """A tool's output may name what another tool of the same person cut."""
    model = Model(Wire.CHAT, [])
    async with world(tmp_path, model) as (runtime, _):
        named = (await runtime.pruner.prune(LOCAL, a_question(LOG.text))).prune_id
        assert named is not None
        model.says = [Says("", (Call("own_1", "recover_text", {"id": named, "end_line": 1}),)), Says("ok")]
        await ask(runtime, Wire.CHAT, [*ITEMS[:-1], Result("call_a1", f"{named}\n{LOG.text}")], stream=False)

    assert parse(model.requests[1], Wire.CHAT).messages[-1].parts[-1].text == lines(1, 1)


async def test_no_more_is_read_back_in_one_answer_than_a_context_window_holds(tmp_path: Path):
    """A model that asked for a long text again and again had 549 MB sent in 50 s."""
    model, long = Model(Wire.CHAT, []), "a line of an enormous log\n" * (MAX_READ_CHARS * 2 // 3 // 26)
    async with world(tmp_path, model) as (runtime, _):
        named = (await runtime.pruner.prune(LOCAL, a_question(long[: 10**6]))).prune_id
        assert named is not None
        calls = tuple(Call(f"own_{n}", "recover_text", {"id": named}) for n in range(6))
        model.says = [Says("", calls), Says("ok")]
        await ask(runtime, Wire.CHAT, [*ITEMS[:-1], Result("call_a1", f"{named}\n{LOG.text}")], stream=False)
    results = [part.text for message in parse(model.requests[1], Wire.CHAT).messages[-6:] for part in message.parts]

    assert sum(map(len, results)) < MAX_READ_CHARS + 2000
    assert [text.startswith("too_long: ") for text in results][-1:] == [True]


async def test_a_conversation_that_goes_on_from_nothing_cannot_either(tmp_path: Path):
    first = Model(Wire.RESPONSES, [Says("ok")])
    async with world(tmp_path, first) as (runtime, _):
        await ask(runtime, Wire.RESPONSES, stream=False)
    (foreign,) = set(ID.findall(first.requests[0]))
    call = Call("own_1", "recover_text", {"id": foreign.decode()})
    model = Model(Wire.RESPONSES, [Says("", (call,)), Says("Never mind.")])
    raw = request_body(Wire.RESPONSES, [User("another question"), *ITEMS[1:]], previous_response_id=None)
    async with world(tmp_path, model) as (runtime, _), runtime.chat.answer(ChatRequest(LOCAL, Wire.RESPONSES, raw)):
        pass

    assert "unknown id" in json.loads(model.requests[1])["input"][-1]["output"]


@WIRES
@pytest.mark.parametrize("stream", [True, False])
async def test_a_call_too_many_is_refused_and_the_model_goes_on(tmp_path: Path, wire: Wire, stream: bool):
    often = [Says("Again.", (recovering(f"own_{n}"),)) for n in range(3)]
    model = Model(wire, [*often, Says("So.", (THEIRS,))])
    async with world(tmp_path, model, "recover_rounds = 2\n") as (runtime, _):
        status, answer = await ask(runtime, wire, stream=stream)

    assert (status, len(model.requests)) == (200, 4)
    assert b"recover_text" not in answer and b"call_b2" in answer
    results = [parse(raw, wire).messages[-1].parts[-1].text for raw in model.requests[1:]]
    assert results[:2] == [lines(3, 4)] * 2
    assert results[2].startswith("no_more: no more may be read in this answer")


@WIRES
async def test_a_model_that_calls_for_ever_is_an_error_and_no_silent_end(tmp_path: Path, wire: Wire):
    model = Model(wire, [Says("Again.", (recovering(),))])
    async with world(tmp_path, model, "recover_rounds = 2\n") as (runtime, _):
        _, answer = await ask(runtime, wire, stream=True)
        with pytest.raises(UpstreamUnreadable, match="5 times in one answer"):
            await ask(runtime, wire, stream=False)

    assert len(model.requests) == 10
    assert UpstreamUnreadable.code.encode() in answer and b"recover_rounds" in answer


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"id": "prn_0000000000000000"}, "prune_id_not_found"),
        ({"id": "nonsense"}, "prune_id_not_found"),
        ({"id": "PRN", "start_line": 10**6}, "invalid_range"),
        ({"start_line": 1}, "invalid_params"),
    ],
)
async def test_what_is_wrong_with_a_question_is_told_to_the_model(
    tmp_path: Path, arguments: dict[str, object], said: str
):
    call = Call("own_1", "recover_text", arguments)  # type: ignore[arg-type]
    model = Model(Wire.CHAT, [Says("", (call,)), Says("Never mind.")])
    async with world(tmp_path, model) as (runtime, _):
        status, answer = await ask(runtime, Wire.CHAT, stream=False)

    assert (status, json.loads(answer)["choices"][0]["message"]["content"]) == (200, "Never mind.")
    assert json.loads(model.requests[1])["messages"][-1]["content"].startswith(said)


@WIRES
async def test_a_provider_that_refuses_to_be_asked_again_is_passed_on(tmp_path: Path, wire: Wire):
    model = Model(wire, [Says("Hm.", (recovering(),))], status=f"429 Too Many Requests{IN_AN_HOUR}")
    async with world(tmp_path, model) as (runtime, _):
        whole = await ask(runtime, wire, stream=False)
        model.requests.clear()
        _, streamed = await ask(runtime, wire, stream=True)

    assert whole == (429, b'{"error":{"message":"slow down"}}')
    assert _last_error(streamed)["error"] == {"message": "slow down"}
    assert b"[DONE]" not in streamed


def _last_error(streamed: bytes) -> dict[str, object]:
    """The data of the event that ends a stream."""
    data = streamed.strip().splitlines()[-1]
    assert data.startswith(b"data: ")
    found: dict[str, object] = json.loads(data.removeprefix(b"data: "))
    return found


@WIRES
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("status", "times"), [("500 Internal Server Error", 2), ("400 Bad Request", 2)])
async def test_a_follow_up_that_fails_for_good_is_told_at_once_in_the_provider_s_words(
    tmp_path: Path, wire: Wire, stream: bool, status: str, times: int
):
    """A failure is asked about once more; so is a refusal, with less text. Before, a failure was for 90 s."""
    body = b'{"error":{"message":"slow down"}}'
    model = Model(wire, [Says("Hm.", (recovering(),))], status=f"{status}\r\nretry-after-ms: 20")
    async with world(tmp_path, model) as (runtime, _):
        code, came = await ask(runtime, wire, stream=stream)

    assert len(model.requests) <= 1 + times
    if stream:
        assert _last_error(came)["error"] == {"message": "slow down"}
    else:
        assert (code, came) == (int(status[:3]), body)


async def test_an_answer_that_is_not_streamed_is_waited_for_no_longer_than_clients_are_patient(tmp_path: Path):
    """A provider that says to come back in eleven seconds is taken at its word only where pings can be sent."""
    says = [Says("Hm.", (recovering(),)), *[Says(" Blind.")] * 3]
    model = Model(Wire.MESSAGES, says, status="429 Too Many Requests\r\nretry-after: 11", refusals=1)
    async with world(tmp_path, model) as (runtime, _):
        async with asyncio.timeout(MAX_SILENCE_S):
            code, came = await ask(runtime, Wire.MESSAGES, stream=False)

    assert code == 200 and b"Blind." in came
    assert b"HTTP 429" in model.requests[2]


@WIRES
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", ["429 Too Many Requests", "529 Overloaded"])
async def test_a_provider_that_is_busy_in_a_later_round_is_waited_for(
    tmp_path: Path, wire: Wire, stream: bool, status: str
):
    says = [Says("Hm.", (recovering(),)), *[Says(" Found.")] * 3]
    model = Model(wire, says, status=f"{status}\r\nretry-after-ms: 20", refusals=2)
    async with world(tmp_path, model) as (runtime, _):
        code, came = await ask(runtime, wire, stream=stream)

    assert code == 200 and b"Found." in came and b"error" not in came.replace(b'"error":null', b"")
    first, *again = model.requests
    assert len(again) == 3 and len(set(again)) == 1, "the same round, not the first one"
    assert again[0].startswith(first[:200]) and first not in again


@WIRES
async def test_where_waiting_takes_too_long_the_model_is_told_and_goes_on(tmp_path: Path, wire: Wire):
    """Most limits are of tokens: what was asked for is left out then."""
    says = [Says("Hm.", (recovering(),)), *[Says(" Blind.")] * 3]
    model = Model(wire, says, status=f"429 Too Many Requests{IN_AN_HOUR}", refusals=1)
    async with world(tmp_path, model) as (runtime, _):
        code, came = await ask(runtime, wire)

    assert code == 200 and b"Blind." in came
    _, refused, told = model.requests
    assert b"unavailable: the provider takes no more text for now (HTTP 429)" in told
    assert len(told) < len(refused) + 200 and b"unavailable" not in refused


async def test_a_stream_is_kept_open_while_the_provider_is_waited_for():
    is_over, pings = asyncio.Event(), 0

    async def work() -> str:
        await is_over.wait()
        return "an answer"

    async for came in with_pings(work(), b"ping", every_s=0.01):
        pings += came == b"ping"
        if pings == 3:
            is_over.set()

    assert (came, pings) == ("an answer", 3)


async def test_a_client_that_hangs_up_ends_the_wait_as_well():
    ended = asyncio.Event()

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    pings = with_pings(work(), b"ping", every_s=0.01)
    assert await anext(pings) == b"ping"
    await pings.aclose()

    assert ended.is_set()


async def test_a_client_that_hangs_up_ends_all_of_it(tmp_path: Path):
    model = Model(Wire.CHAT, [Says("Hm.", (recovering(),)), Says("A long answer. " * 500)])
    async with world(tmp_path, model) as (runtime, provider):
        raw = request_body(Wire.CHAT, ITEMS, stream=True)
        async with runtime.chat.answer(ChatRequest(LOCAL, Wire.CHAT, raw)) as answer:
            assert answer.rest is not None
            assert await anext(answer.rest)
        assert len(provider.heard) <= 2


async def test_whoever_goes_on_from_an_answer_by_its_id_goes_on_from_its_last_round(tmp_path: Path):
    first = Says("Hm.", (recovering(),), id="resp_1")
    model = Model(Wire.RESPONSES, [first, Says("Found it.", id="resp_2"), Says("More.", id="resp_3")])
    async with world(tmp_path, model) as (runtime, _):
        _, answer = await ask(runtime, Wire.RESPONSES)
        raw = request_body(Wire.RESPONSES, [User("And?")], previous_response_id="resp_1")
        async with runtime.chat.answer(ChatRequest(LOCAL, Wire.RESPONSES, raw)):
            pass

    assert b'"id":"resp_2"' not in answer.replace(b" ", b"")
    assert json.loads(model.requests[2])["previous_response_id"] == "resp_2"


@WIRES
@pytest.mark.parametrize("left_out", [1, 2])
async def test_a_stream_whose_last_event_is_not_ended_goes_on_like_any_other(tmp_path: Path, wire: Wire, left_out: int):
    says = [Says("Hm.", (recovering(),), tokens=(100, 5)), Says("Found it.", tokens=(120, 7))]

    class Hasty(Model):
        async def __call__(self, heard: Heard, line: Line) -> None:
            told = events(self.wire, says[len(self.requests)])
            self.requests.append(heard.body)
            found = ID.search(heard.body)
            raw = b"".join(told).replace(b"PRN", found[0] if found else b"")
            await line.stream(raw[:-left_out])

    model = Hasty(wire, says)
    async with world(tmp_path, model) as (runtime, _):
        _, answer = await ask(runtime, wire)
    reader = ReplyReader(wire, is_stream=True)
    reader.feed(answer + b"\n\n")

    assert len(model.requests) == 2
    assert b"recover_text" not in answer and b"own_1" not in answer
    assert answer.count(b"[DONE]") == (1 if wire is Wire.CHAT else 0)
    assert reader.facts.is_complete and reader.facts.unreadable == 0
    assert reader.facts.usage is not None
    assert (reader.facts.usage.input_tokens, reader.facts.usage.output_tokens) == (120, 7)


def a_long_talk() -> list[Item]:
    said: list[Item] = []
    for n in range(12):
        said += [User(f"question {n}: {'tell me more about it ' * 60}"), Assistant(f"answer {n}: {'so it is ' * 60}")]
    return said


@WIRES
async def test_of_a_summarized_history_it_goes_with_the_next_request_too(tmp_path: Path, wire: Wire):
    call = Call("own_1", "recover_text", {"id": "PRN", "start_line": 1, "end_line": 1})
    model = Model(wire, [Says("Begun."), Says("Both.", (call, THEIRS)), Says("Thanks.")])
    said: list[Item] = [*a_long_talk(), User("and?"), Assistant("Begun."), User("what was first?")]
    later: list[Item] = [*said, Assistant("Both.", (Asked("call_b2"),)), Result("call_b2", "a.py")]
    async with world(tmp_path, model, "[compression]\nask_provider = false\n") as (runtime, _):
        await ask(runtime, wire, said[:-2], stream=False)
        ((session, *_),) = [[metric.session for metric in page] async for page in runtime.sessions.metrics(LOCAL, None)]
        await runtime.compressions.compress(LOCAL, session, runtime.compressions.usual)
        _, answer = await ask(runtime, wire, said, stream=False)
        for _ in range(2):
            await ask(runtime, wire, later, stream=False)
        await runtime.compressions.undo(LOCAL, session)
        await ask(runtime, wire, later, stream=False)

    assert b"recover_text" not in answer and b"call_b2" in answer
    told = [parse(raw, wire).messages[-1].parts[-1].text for raw in model.requests[2:]]
    assert told[0] == told[1]
    assert told[0].startswith("a.py\n\n[recover_text ") and "question 0: tell me more" in told[0]
    assert told[2] == "a.py"


@pytest.mark.parametrize("stream", [True, False])
async def test_whoever_goes_on_by_id_brings_a_result_for_our_call_too(tmp_path: Path, stream: bool):
    """The provider has kept an answer with both calls, and wants both results."""
    both = Says("Both.", (recovering(), THEIRS), id="resp_1")
    model = Model(Wire.RESPONSES, [both, Says("Thanks.", id="resp_2"), Says("Again.", id="resp_3")])
    result: JsonObject = {"type": "function_call_output", "call_id": "call_b2", "output": "a.py"}
    asked: JsonObject = {"model": "kimi-k2", "previous_response_id": "resp_1", "input": [result]}
    async with world(tmp_path, model) as (runtime, _):
        await ask(runtime, Wire.RESPONSES, stream=stream)
    async with world(tmp_path, model) as (runtime, _):
        for _ in range(2):
            async with runtime.chat.answer(ChatRequest(LOCAL, Wire.RESPONSES, json.dumps(asked).encode())):
                pass

    told = [json.loads(raw)["input"] for raw in model.requests[1:]]
    ours: JsonObject = {"type": "function_call_output", "call_id": "own_1", "output": lines(3, 4)}
    assert told == [[result, ours], [result, ours]]


@WIRES
async def test_calls_that_are_numbered_anew_in_every_turn_are_told_apart(tmp_path: Path, wire: Wire):
    asked = (recovering(start_line=3, end_line=4), recovering(start_line=5, end_line=6))
    model = Model(wire, [*(Says("Both.", (own, THEIRS)) for own in asked), Says("Thanks.")])
    turns: list[Item] = list(ITEMS)
    async with world(tmp_path, model) as (runtime, _):
        for name in ("a.py", "b.py", ""):
            await ask(runtime, wire, turns, stream=False)
            turns += [Assistant("Both.", (Asked("call_b2"),)), Result("call_b2", name)]

    first, second = (parse(raw, wire) for raw in model.requests[1:])
    assert second.body.startswith(first.body[: first.messages[-1].end])
    told = [part.text for message in second.messages for part in message.parts if part.call_id == "call_b2"]
    assert [text.split("\n")[0] for text in told[1::2]] == ["a.py", "b.py"]
    assert [text.endswith(lines(*at)) for text, at in zip(told[1::2], [(3, 4), (5, 6)], strict=True)] == [True, True]


@dataclass(slots=True)
class Small(Model):
    """Its window takes no more than this."""

    max_bytes: int = 0

    async def __call__(self, heard: Heard, line: Line) -> None:
        if len(heard.body) <= self.max_bytes:
            await Model.__call__(self, heard, line)
        else:
            await line.send(http(b'{"error":{"message":"prompt is too long"}}', "400 Bad Request"))


@WIRES
@pytest.mark.parametrize("stream", [True, False])
async def test_a_text_that_does_not_fit_is_asked_for_in_parts(tmp_path: Path, wire: Wire, stream: bool):
    all_of_it = Call("own_1", "recover_text", {"id": "PRN"})
    says = [Says("Hm.", (all_of_it,)), Says("So.", (recovering("own_2"),)), Says("Found it.")]
    model = Small(wire, says, max_bytes=len(LOG.text))
    async with world(tmp_path, model) as (runtime, _):
        status, answer = await ask(runtime, wire, stream=stream)
    reader = ReplyReader(wire, stream)
    reader.feed(answer)

    assert status == 200 and b"too long" not in answer
    assert reader.facts.is_complete and len(model.requests) == 3
    again, last = (parse(raw, wire).messages[-1].parts[-1].text for raw in model.requests[1:])
    assert again.startswith("too_long:") and f"{len(LOG.text)} characters" in again
    assert last == lines(3, 4)


async def test_what_is_told_beside_a_result_for_good_is_not_the_whole_history(tmp_path: Path):
    long = "\n".join(f"{n} {LOG.text}" for n in range(8))
    model = Model(Wire.CHAT, [Says("Both.", (Call("own_1", "recover_text", {"id": "PRN"}), THEIRS)), Says("Thanks.")])
    begun: list[Item] = [*ITEMS[:2], Result("call_a1", long)]
    async with world(tmp_path, model) as (runtime, _):
        await ask(runtime, Wire.CHAT, begun, stream=False)
        later: list[Item] = [*begun, Assistant("Both.", (Asked("call_b2"),)), Result("call_b2", "a.py")]
        await ask(runtime, Wire.CHAT, later, stream=False)

    told = parse(model.requests[1], Wire.CHAT).messages[-1].parts[-1].text
    assert "too_long:" in told and len(told) < 1_000
