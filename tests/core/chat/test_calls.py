"""A call of our wrapper reaches the client as a call of its own tool, in a stream and in one piece."""

import json

import pytest
from tests.support.model import Call, Says, body, events

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import EventSplitter
from kimi_proxy.core.chat.wires.calls import UnwrappedCall
from kimi_proxy.core.json import JsonObject

WIRES = pytest.mark.parametrize("wire", list(Wire))
USE = Call("call_1", "use_tool", {"name": "mcp__a__open", "arguments": {"path": 'a ⟦b⟧ \\ " é'}})
OPEN = Call("call_1", "mcp__a__open", {"path": 'a ⟦b⟧ \\ " é'})
LS = Call("call_2", "bash", {"command": "ls"})


def unwrap(arguments: str) -> UnwrappedCall | None:
    try:
        given = json.loads(arguments)
    except ValueError:
        return None
    name = given.get("name") if isinstance(given, dict) else None
    return UnwrappedCall(name, json.dumps(given["arguments"])) if name == "mcp__a__open" else None


def rewritten(wire: Wire, raw: bytes, size: int) -> list[bytes]:
    """Return the events that the client reads of a stream that comes in slices of this size."""
    stream, splitter = wire.format.call_stream("use_tool", unwrap), EventSplitter()
    slices = [raw[at : at + size] for at in range(0, len(raw), size)]
    return [each for piece in slices for event in splitter.feed(piece) for each in stream.feed(event)]


def calls_in(wire: Wire, answer: bytes) -> list[tuple[str, str, JsonObject]]:
    """Return the ids, names and arguments of the calls that a client puts together."""
    rounds, splitter = wire.format.recall_stream([OPEN.name, LS.name]), EventSplitter()
    for event in splitter.feed(answer):
        rounds.feed(event)
    return [(call.id, call.name, json.loads(call.arguments)) for call in rounds.calls.own]


@WIRES
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((USE,), (OPEN,)),
        ((USE, LS), (OPEN, LS)),
        ((LS, USE), (LS, OPEN)),
        ((USE, Call("call_3", USE.name, USE.arguments)), (OPEN, Call("call_3", OPEN.name, OPEN.arguments))),
    ],
    ids=["alone", "first", "last", "two"],
)
def test_it_is_rewritten_wherever_the_stream_is_cut(wire: Wire, said: tuple[Call, ...], expected: tuple[Call, ...]):
    raw = b"".join(events(wire, Says("Hm.", said, "Thought.")))
    whole = b"".join(rewritten(wire, raw, len(raw)))

    assert b"use_tool" not in whole and b"Hm." in whole
    assert all(b"".join(rewritten(wire, raw, size)) == whole for size in (1, 2, 3, 5, 7, 64, 1000))
    assert sorted(calls_in(wire, whole)) == sorted((c.id, c.name, c.arguments) for c in expected)
    if wire is Wire.RESPONSES:
        items = [json.loads(line[6:]) for line in whole.split(b"\n") if line.startswith(b"data: ")]
        numbers = [item["sequence_number"] for item in items]
        assert numbers == sorted(set(numbers))
        output = items[-1]["response"]["output"]
        done = [item["item"] for item in items if item["type"] == "response.output_item.done"]
        assert [item for item in done if "call_id" in item] == [item for item in output if "call_id" in item]


@WIRES
def test_every_other_answer_passes_byte_for_byte(wire: Wire):
    says = Says("I will not call use_tool.", (LS,), "Thought.")
    raw = b"".join(events(wire, says))
    came = json.loads(body(wire, says))

    assert b"".join(rewritten(wire, raw, len(raw))) == raw
    assert wire.format.call_stream("use_tool", unwrap).rewrite_body(came) is came


@WIRES
def test_a_call_that_stands_for_no_tool_stays_ours(wire: Wire):
    says = Says("", (Call("call_1", "use_tool", {"name": "nothing", "arguments": {}}),))
    came = json.loads(body(wire, says))
    shown = b"".join(rewritten(wire, b"".join(events(wire, says)), 10**6))

    assert b"use_tool" in shown
    assert wire.format.call_stream("use_tool", unwrap).rewrite_body(came) is came


@WIRES
def test_it_is_rewritten_in_one_piece(wire: Wire):
    came = json.loads(body(wire, Says("Hm.", (LS, USE))))
    shown = wire.format.call_stream("use_tool", unwrap).rewrite_body(came)

    assert shown == json.loads(body(wire, Says("Hm.", (LS, OPEN)))) or wire in (Wire.CHAT, Wire.RESPONSES)
    assert "use_tool" not in json.dumps(shown) and "mcp__a__open" in json.dumps(shown)


@WIRES
def test_a_stream_that_breaks_off_shows_no_half_of_a_call(wire: Wire):
    raws = events(wire, Says("Hm.", (USE,)))
    stream = wire.format.call_stream("use_tool", unwrap)
    shown = [each for raw in raws[: len(raws) // 2] for each in stream.feed(raw)]

    assert b"use_tool" not in b"".join(shown)
