"""The scripted model speaks two APIs, and an agent understands what it says in each."""

import json

import pytest

from kimi_proxy.core import chat
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab import scripted_provider as provider
from kimi_proxy.lab.demo import read_stream
from kimi_proxy.lab.demo_day import RECOVER, Script, ScriptedCall, ScriptedConversation, ScriptedReply, Turn

CALL = ScriptedCall("read", {"path": "é.py", "lines": "1-2"}, "def f(): ...")
TURN = Turn("What is in é.py?", (ScriptedReply("I read it.", (CALL,)), ScriptedReply("A function “f”.")))
RECOVERING = Turn(
    "And the rest?", (ScriptedReply("One moment.", (ScriptedCall(RECOVER, {}),)), ScriptedReply("That is all."))
)
MARKER = "x = 1\n⟦PRUNÉ: prune_id=prn_0123456789abcdef lignes 12-90 (79) raison=hors sujet⟧"


def script(wire: Wire = Wire.CHAT) -> Script:
    return Script([ScriptedConversation("c", "", wire, "m", "", (TURN, RECOVERING))])


def request(*messages: JsonValue, tools: tuple[str, ...] = ()) -> chat.Request:
    offered = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    body = {"model": "m", "messages": list(messages), "tools": offered}
    return chat.parse(json.dumps(body).encode(), Wire.CHAT)


@pytest.mark.parametrize("wire", [Wire.CHAT, Wire.MESSAGES])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_stream_is_read_however_it_is_cut(wire: Wire, step: int):
    spoken = script(wire).after_text[TURN.said]
    stream = b"".join(provider.frames(wire, spoken, Usage(10, 3, 4), "a-1", "m"))

    said = read_stream([stream[at : at + step] for at in range(0, len(stream), step)])

    assert said.text == "I read it."
    assert [(call.id, call.tool, call.read_arguments) for call in said.calls] == [
        ("call_c_0_0_0", "read", CALL.arguments)
    ]


def test_the_newest_message_that_is_known_decides():
    said: JsonValue = {"role": "user", "content": TURN.said}
    printed: JsonValue = {"role": "tool", "tool_call_id": "call_c_0_0_0", "content": "def f(): ..."}

    assert provider.answer(request(said), script()).text == "I read it."
    assert provider.answer(request(said, printed), script()).text == "A function “f”."
    assert provider.answer(request(said, printed, {"role": "system", "content": "again"}), script()).text.startswith(
        "A f"
    )


def test_it_answers_an_unknown_message_with_a_summary():
    assert provider.answer(request({"role": "user", "content": "Summarize."}), script()).text == provider.SUMMARY


def test_it_recovers_what_the_newest_marker_hides():
    said: tuple[JsonValue, ...] = ({"role": "tool", "content": MARKER}, {"role": "user", "content": RECOVERING.said})

    spoken = provider.answer(request(*said, tools=(RECOVER,)), script())

    assert [call.arguments for _, call in spoken.calls] == [
        {"id": "prn_0123456789abcdef", "start_line": 12, "end_line": 42}
    ]


def test_without_the_tool_or_a_marker_it_goes_on():
    said: JsonValue = {"role": "user", "content": RECOVERING.said}

    assert provider.answer(request(said, tools=(RECOVER,)), script()).text == "That is all."
    assert provider.answer(request({"role": "tool", "content": MARKER}, said), script()).text == "That is all."
