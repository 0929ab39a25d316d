"""Our tool's calls are hidden, and what follows on them reads as one answer."""

import json
import time

import pytest
from tests.support.conversations import User, request
from tests.support.model import Call, Says, body, events

from kimi_proxy.core.chat import Request, Wire, edit, parse
from kimi_proxy.core.chat.reply import EventSplitter, ReplyReader
from kimi_proxy.core.chat.wires.protocol import RecallCall, RecallRounds, RoundCalls, Usage
from kimi_proxy.core.json import JsonObject, JsonValue

WIRES = pytest.mark.parametrize("wire", list(Wire))
OWN = Call("own_1", "recover_text", {"id": "prn_0123456789abcdef", "start_line": 7})
THEIRS = Call("call_1", "bash", {"command": "ls -la"})
FIRST = Says("Let me look.", (OWN,), "I wonder.", (100, 20), "answer-1")
SECOND = Says(" There it is.", (THEIRS,), "", (150, 9), "answer-2")


FOUND = {"id": "own_1", "name": "recover_text", "response": {"output": "line of own_1"}}


def asked_again(rounds: RecallRounds, asked: Request, answers: list[str]) -> Request:
    ids = [call.id for call in rounds.calls.own]
    results = asked.format.new_tool_results(zip(ids, answers, strict=True), [OWN.name] * len(ids))
    return edit.with_items(asked, [*rounds.next_round(), *results])


def played(wire: Wire, *rounds: Says, ends: bool = True) -> tuple[bytes, list[JsonObject]]:
    """What the client sees, and the requests that asked again."""
    stream, asked = wire.format.recall_stream([OWN.name]), request(wire, [User("go")])
    shown, again = b"", []
    for nth, says in enumerate(rounds):
        raw = events(wire, says)
        for one in raw if ends else raw[:-2]:
            shown += stream.feed(one)
        if nth < len(rounds) - 1:
            asked = asked_again(stream, asked, [f"line of {call.id}" for call in stream.calls.own])
            again.append(json.loads(asked.body))
    return shown + stream.ending(), again


def objects_in(raw: bytes) -> list[JsonObject]:
    lines = (line.removeprefix(b"data: ") for line in raw.split(b"\n") if line.startswith(b"data: {"))
    return [json.loads(line) for line in lines]


@WIRES
def test_a_stream_without_our_tool_passes_byte_for_byte(wire: Wire):
    raw = b"".join(events(wire, Says("Hello.", (THEIRS,), "Hm.")))

    assert played(wire, Says("Hello.", (THEIRS,), "Hm.")) == (raw, [])


@WIRES
def test_a_stream_takes_linear_time(wire: Wire):
    """One of 40 MB took 22 s, and one of 10 MB 1.5 s."""

    def seconds(mib: int) -> float:
        says = Says("y" * 1024, (), "i" * 1024)
        *begin, text, stop = raw = events(wire, says)
        grows = [one for one in raw if b"y" * 512 in one or b"i" * 512 in one] or [text]
        stream, began = wire.format.recall_stream([OWN.name]), time.process_time()
        for one in (*begin, *(one for _ in range(mib * 512) for one in grows[:2]), stop):
            stream.feed(one)
        return time.process_time() - began

    seconds(1)
    assert min(seconds(8) for _ in range(2)) < 3 * min(seconds(4) for _ in range(2)) + 0.05


def test_a_long_event_takes_linear_time():
    def seconds(mib: int) -> float:
        splitter, began = EventSplitter(), time.process_time()
        for _ in range(mib * 256):
            assert list(splitter.feed(b"x" * 4096)) == []
        return time.process_time() - began

    assert min(seconds(8) for _ in range(2)) < 3 * min(seconds(4) for _ in range(2)) + 0.05


@WIRES
def test_two_rounds_are_one_stream_without_our_call(wire: Wire):
    shown, _ = played(wire, FIRST, SECOND)

    assert b"recover_text" not in shown and b"own_1" not in shown
    assert shown.count(b"[DONE]") == (1 if wire is Wire.CHAT else 0)
    reader = ReplyReader(wire, is_stream=True)
    reader.feed(shown)
    assert reader.facts.is_complete
    assert reader.facts.usage is not None
    assert (reader.facts.usage.input_tokens, reader.facts.usage.output_tokens) == (150, 9)


NO_CACHE = {"cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}  # clients add up all four counts


@pytest.mark.parametrize("is_stream", [True, False])
def test_messages_count_each_round_where_claude_code_looks_for_it(is_stream: bool):
    """The count of the answer is the last round's, by which Claude Code knows how full its window is."""
    if is_stream:
        usage = objects_in(played(Wire.MESSAGES, FIRST, SECOND)[0])[-2]["usage"]
    else:
        rounds, asked = Wire.MESSAGES.format.recall_body([OWN.name]), request(Wire.MESSAGES, [User("go")])
        rounds.take(json.loads(body(Wire.MESSAGES, FIRST)))
        asked_again(rounds, asked, ["line"])
        rounds.take(json.loads(body(Wire.MESSAGES, SECOND)))
        usage = rounds.join_rounds()["usage"]

    counts = [{"input_tokens": 100, "output_tokens": 20}, {"input_tokens": 150, "output_tokens": 9}]
    assert usage == {**counts[1], "iterations": [{"type": "message", **each, **NO_CACHE} for each in counts]}


def test_messages_add_up_the_rounds_for_a_client_that_shows_their_cost():
    rounds = Wire.MESSAGES.format.recall_body([OWN.name], sums_usage=True)
    rounds.take(json.loads(body(Wire.MESSAGES, FIRST)))
    asked_again(rounds, request(Wire.MESSAGES, [User("go")]), ["line"])
    rounds.take(json.loads(body(Wire.MESSAGES, SECOND)))
    usage = rounds.join_rounds()["usage"]

    counts = [{"input_tokens": 100, "output_tokens": 20}, {"input_tokens": 150, "output_tokens": 9}]
    iterations = [{"type": "message", **each, **NO_CACHE} for each in counts]
    assert usage == {"input_tokens": 250, "output_tokens": 29, "iterations": iterations}


def test_chat_chunks_have_one_id_one_role_and_calls_from_zero_on():
    chunks = objects_in(played(Wire.CHAT, FIRST, SECOND)[0])
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]

    assert {chunk["id"] for chunk in chunks} == {"answer-1"}
    assert [delta["role"] for delta in deltas if "role" in delta] == ["assistant"]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Let me look. There it is."
    assert {call["index"] for delta in deltas for call in delta.get("tool_calls", [])} == {0}
    assert [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]] == ["tool_calls"]


def test_blocks_of_messages_are_numbered_through():
    shown = objects_in(played(Wire.MESSAGES, FIRST, SECOND)[0])
    started = [event for event in shown if event["type"] == "content_block_start"]

    assert [event["index"] for event in started] == [0, 1, 2, 3]
    assert [event["content_block"]["type"] for event in started] == ["thinking", "text", "text", "tool_use"]
    assert [event["type"] for event in shown].count("message_start") == 1
    assert [event["type"] for event in shown][-2:] == ["message_delta", "message_stop"]


def test_items_of_a_response_are_numbered_through_and_all_of_them_are_in_its_end():
    shown = objects_in(played(Wire.RESPONSES, FIRST, SECOND)[0])
    added = [event for event in shown if event["type"] == "response.output_item.added"]

    assert [event["output_index"] for event in added] == [0, 1, 2, 3]
    assert [event["sequence_number"] for event in shown] == list(range(len(shown)))
    assert [item["type"] for item in shown[-1]["response"]["output"]] == [
        "reasoning",
        "message",
        "message",
        "function_call",
    ]


@WIRES
def test_the_provider_is_asked_again_with_what_it_said_and_what_was_recovered(wire: Wire):
    _, (again,) = played(wire, FIRST, SECOND)
    call = {"name": "recover_text", "arguments": OWN.written}
    expected = {
        Wire.CHAT: [
            {
                "role": "assistant",
                "content": "Let me look.",
                "reasoning_content": "I wonder.",
                "tool_calls": [{"id": "own_1", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": "own_1", "content": "line of own_1"},
        ],
        Wire.MESSAGES: [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I wonder.", "signature": "sig"},
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "own_1", "name": "recover_text", "input": OWN.arguments},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "own_1", "content": "line of own_1"}]},
        ],
        Wire.GEMINI: [
            {
                "role": "model",
                "parts": [
                    *({"text": piece, "thought": True} for piece in ("I wonde", "r.")),
                    {"text": "Let me look."},
                    {
                        "functionCall": {"id": "own_1", "name": "recover_text", "args": OWN.arguments},
                        "thoughtSignature": "sig",
                    },
                    {"text": ""},
                ],
            },
            {"role": "user", "parts": [{"functionResponse": FOUND}]},
        ],
    }
    if wire is Wire.RESPONSES:
        assert [item["type"] for item in again["input"][1:]] == [
            "reasoning",
            "message",
            "function_call",
            "function_call_output",
        ]
        assert again["input"][-1] == {"type": "function_call_output", "call_id": "own_1", "output": "line of own_1"}
    else:
        assert again[wire.format.conversation][-2:] == expected[wire]


@WIRES
def test_both_calls_in_one_round_leave_the_clients(wire: Wire):
    shown, _ = played(wire, Says("Both.", (OWN, THEIRS)))
    stream = wire.format.recall_stream([OWN.name])
    for raw in events(wire, Says("Both.", (OWN, THEIRS))):
        stream.feed(raw)

    assert b"recover_text" not in shown and b"call_1" in shown
    assert stream.calls == RoundCalls((RecallCall("own_1", OWN.written, OWN.name),), ("call_1",))
    if wire is Wire.CHAT:
        deltas = [choice["delta"] for chunk in objects_in(shown) for choice in chunk["choices"]]
        assert {call["index"] for delta in deltas for call in delta.get("tool_calls", [])} == {0}


@WIRES
def test_a_round_that_breaks_off_has_no_calls_to_answer(wire: Wire):
    stream = wire.format.recall_stream([OWN.name])
    for raw in events(wire, FIRST)[:-3]:
        stream.feed(raw)

    assert stream.calls == RoundCalls()
    assert stream.ending() == b""


@WIRES
@pytest.mark.parametrize("second", [SECOND, Says("Only words.", tokens=(150, 9))])
def test_two_rounds_in_one_piece_are_one_answer(wire: Wire, second: Says):
    rounds, asked = wire.format.recall_body([OWN.name]), request(wire, [User("go")])
    turn = rounds.take(json.loads(body(wire, FIRST)))
    again = asked_again(rounds, asked, ["line of own_1"])
    after = rounds.take(json.loads(body(wire, second)))
    shown = json.dumps(rounds.join_rounds())

    assert turn == RoundCalls((RecallCall("own_1", OWN.written, OWN.name),), ())
    assert after == RoundCalls((), tuple(call.id for call in second.calls))
    assert b"line of own_1" in again.body and b"own_1" in again.body
    assert "recover_text" not in shown and "Let me look." in shown and second.text in shown
    answer = json.loads(shown)
    counted = wire.format.usage(answer.get("usage") or answer.get("usageMetadata"))
    assert counted is not None and (counted.input_tokens, counted.output_tokens) == (150, 9)
    assert [wire.format.usage(usage) for usage in rounds.usages] == [Usage(100, 20), Usage(150, 9)]


@WIRES
def test_both_calls_in_one_piece_leave_the_clients(wire: Wire):
    rounds = wire.format.recall_body([OWN.name])
    turn = rounds.take(json.loads(body(wire, Says("Both.", (OWN, THEIRS)))))

    assert turn == RoundCalls((RecallCall("own_1", OWN.written, OWN.name),), ("call_1",))
    assert "recover_text" not in json.dumps(rounds.join_rounds()) and "call_1" in json.dumps(rounds.join_rounds())


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n"])
def test_events_come_whole_however_they_are_cut(end: bytes):
    raw = b": hello" + end + b"data: 1" + end + b"event: x" + end[: len(end) // 2] + b"data: 2" + end + b"data: 3"
    for size in range(1, len(raw) + 1):
        whole = EventSplitter()
        found = [one for at in range(0, len(raw), size) for one in whole.feed(raw[at : at + size])]
        assert b"".join(found) + whole.rest() == raw
        assert [one.count(b"data:") for one in found if b"data:" in one] == [1, 1]


def test_calls_without_an_index_and_what_comes_with_them_are_sent_back():
    signed: JsonObject = {"google": {"thought_signature": "abc"}}
    calls: list[JsonObject] = [
        {
            "id": "own_1",
            "type": "function",
            "function": {"name": "recover_text", "arguments": "{}"},
            "extra_content": signed,
        },
        {"id": "own_2", "type": "function", "function": {"name": "recover_text", "arguments": "{}"}},
    ]
    chunk = {"id": "1", "choices": [{"index": 0, "delta": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}
    stream = Wire.CHAT.format.recall_stream(["recover_text"])
    shown = stream.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    again = json.loads(asked_again(stream, request(Wire.CHAT, [User("go")]), ["one", "two"]).body)

    assert shown == b""
    assert again["messages"][-3]["tool_calls"] == calls
    assert [message["content"] for message in again["messages"][-2:]] == ["one", "two"]


SEARCHED: JsonObject = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search"}}


def with_a_search(says: Says) -> JsonObject:
    """A response in which the provider has looked something up by itself."""
    response: JsonObject = json.loads(body(Wire.RESPONSES, says))
    output = response["output"]
    assert isinstance(output, list)
    return {**response, "output": [SEARCHED, *output]}


def test_what_a_provider_does_by_itself_is_no_call_that_a_client_has_to_make():
    response = with_a_search(FIRST)
    whole, stream = Wire.RESPONSES.format.recall_body([OWN.name]), Wire.RESPONSES.format.recall_stream([OWN.name])
    for at, item in enumerate(response["output"]):  # type: ignore[arg-type]
        event = {"type": "response.output_item.done", "output_index": at, "item": item}
        stream.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    stream.feed(b"data: " + json.dumps({"type": "response.completed", "response": response}).encode() + b"\n\n")

    assert whole.take(response) == stream.calls == RoundCalls((RecallCall("own_1", OWN.written, OWN.name),), ())


def test_a_call_that_only_the_end_of_a_response_names_is_hidden_too():
    stream = Wire.RESPONSES.format.recall_stream([OWN.name])
    first, last = events(Wire.RESPONSES, FIRST)[0], events(Wire.RESPONSES, FIRST)[-1]
    shown = stream.feed(first) + stream.feed(last)

    assert shown == first
    assert stream.calls.own == (RecallCall("own_1", OWN.written, OWN.name),)
    assert b"recover_text" not in stream.ending()


@pytest.mark.parametrize("begun", [[FIRST, SECOND], [FIRST]])
def test_a_provider_that_reports_an_error_in_the_middle_reaches_the_client(begun: list[Says]):
    error = b'data: {"error":{"message":"overloaded","code":503}}\n\n'
    stream, asked = Wire.CHAT.format.recall_stream([OWN.name]), request(Wire.CHAT, [User("go")])
    for nth, says in enumerate(begun):
        if nth:
            asked_again(stream, asked, ["line"])
        for raw in events(Wire.CHAT, says)[: -3 if nth == len(begun) - 1 else None]:
            stream.feed(raw)

    assert stream.feed(error) == error
    assert stream.calls == RoundCalls()


@WIRES
@pytest.mark.parametrize("id", ["own_1", ""])
def test_two_calls_with_one_id_get_an_answer_each(wire: Wire, id: str):
    says = Says("", (Call(id, OWN.name, OWN.arguments), Call(id, OWN.name, {"id": "prn_fedcba9876543210"})))
    whole, stream = wire.format.recall_body([OWN.name]), wire.format.recall_stream([OWN.name])
    whole.take(json.loads(body(wire, says)))
    for raw in events(wire, says):
        stream.feed(raw)

    for rounds in (whole, stream):
        again = parse(asked_again(rounds, request(wire, [User("go")]), ["one", "two"]).body, wire)
        results = [part for message in again.messages for part in message.parts if part.kind == "tool_result"]
        assert [part.text for part in results] == ["one", "two"]


class Broken(Call):
    """It was cut off before it was all written."""

    @property
    def written(self) -> str:
        return '{"id":"prn_0123456'


@pytest.mark.parametrize("wire", [Wire.CHAT, Wire.RESPONSES])
def test_what_the_model_wrote_and_is_no_json_is_not_sent_back(wire: Wire):
    says = Says("", (Broken("own_1", OWN.name, {}),))
    whole, stream = wire.format.recall_body([OWN.name]), wire.format.recall_stream([OWN.name])
    whole.take(json.loads(body(wire, says)))
    for raw in events(wire, says):
        stream.feed(raw)

    for rounds in (whole, stream):
        again = parse(asked_again(rounds, request(wire, [User("go")]), ["no JSON"]).body, wire)
        assert [part.text for part in again.messages[-2].parts] == ["{}"]


def test_a_name_that_comes_with_every_piece_is_one_name():
    stream = Wire.CHAT.format.recall_stream([OWN.name])
    for nth, raw in enumerate(events(Wire.CHAT, FIRST)):
        again = b'"function": {"name": "recover_text", "arguments":'
        stream.feed(raw if nth < 4 else raw.replace(b'"function": {"arguments":', again))

    assert stream.calls == RoundCalls((RecallCall("own_1", OWN.written, OWN.name),), ())


def test_a_count_inside_of_the_choice_is_that_of_all_rounds():
    """Kimi counts there."""
    stream, asked = Wire.CHAT.format.recall_stream([OWN.name]), request(Wire.CHAT, [User("go")])
    shown = b""
    for nth, says in enumerate((FIRST, Says("Done.", tokens=(150, 9)))):
        if nth:
            asked_again(stream, asked, ["line"])
        read, written = says.tokens
        count = b'"usage": {"prompt_tokens": %d, "completion_tokens": %d}, "finish_reason": "' % (read, written)
        for raw in events(Wire.CHAT, says)[:-2]:
            shown += stream.feed(raw.replace(b'"finish_reason": "', count))
    reader = ReplyReader(Wire.CHAT, is_stream=True)
    reader.feed(shown)

    assert reader.facts.usage is not None
    assert (reader.facts.usage.input_tokens, reader.facts.usage.output_tokens) == (150, 9)


BLOCKS: list[JsonObject] = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "So it is."}]


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ("Hm.", " Yes.", "Hm. Yes."),
        (None, "Yes.", "Yes."),
        ("Hm.", None, "Hm."),
        ("Hm.", BLOCKS, [{"type": "text", "text": "Hm."}, *BLOCKS]),
        (BLOCKS, "Yes.", [*BLOCKS, {"type": "text", "text": "Yes."}]),
        (BLOCKS, None, BLOCKS),
        (None, BLOCKS, BLOCKS),
    ],
)
def test_words_that_come_in_blocks_are_words_too(first: JsonValue, second: JsonValue, shown: JsonValue):
    """Some providers tell thoughts and words apart that way."""
    rounds = Wire.CHAT.format.recall_body([OWN.name])
    for nth, (says, content) in enumerate(((FIRST, first), (Says("Yes."), second))):
        if nth:
            asked_again(rounds, request(Wire.CHAT, [User("go")]), ["line"])
        answer = json.loads(body(Wire.CHAT, says))
        answer["choices"][0]["message"]["content"] = content
        rounds.take(answer)

    assert json.loads(json.dumps(rounds.join_rounds()))["choices"][0]["message"]["content"] == shown


def test_a_call_in_a_namespace_is_the_client_s_whatever_its_name():
    """Codex calls the tools of an MCP server so; the server's own `recover_text` is none of ours."""
    response = json.loads(body(Wire.RESPONSES, FIRST))
    call = next(item for item in response["output"] if item["type"] == "function_call")
    call["namespace"] = "mcp__pruner"
    whole, stream = Wire.RESPONSES.format.recall_body([OWN.name]), Wire.RESPONSES.format.recall_stream([OWN.name])
    raw = (
        b"event: response.completed\ndata: " + json.dumps({"type": "response.completed", "response": response}).encode()
    )

    assert whole.take(response) == RoundCalls((), ("own_1",))
    assert stream.feed(raw + b"\n\n") == raw + b"\n\n"
    assert stream.calls == RoundCalls((), ("own_1",))


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        (("I look.", "It fails."), "I look.\n\nIt fails."),
        (("I look. ", "It fails."), "I look. It fails."),
        (("", "It fails."), "It fails."),
        (("I look.", "", "It fails."), "I look.\n\nIt fails."),
    ],
)
def test_the_texts_of_two_rounds_do_not_run_into_each_other(texts: tuple[str, ...], shown: str):
    rounds = [Says(text, (OWN,) if nth < len(texts) - 1 else ()) for nth, text in enumerate(texts)]
    raw, _ = played(Wire.CHAT, *rounds)
    whole = Wire.CHAT.format.recall_body([OWN.name])
    for says in rounds:
        if whole.take(json.loads(body(Wire.CHAT, says))).own:
            whole.next_round()

    deltas = [choice["delta"] for each in objects_in(raw) for choice in each["choices"]]  # type: ignore[index, union-attr]
    assert "".join(delta.get("content") or "" for delta in deltas) == shown  # type: ignore[union-attr, misc]
    assert whole.join_rounds()["choices"][0]["message"]["content"] == shown  # type: ignore[index, call-overload]
