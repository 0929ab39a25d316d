"""Which parts of a conversation may be shortened, and by what they are known."""

import json

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.sanitizer.plan import LongOutput, plan

LONG = "a line of output that goes on and on\n" * 100
WIRES = pytest.mark.parametrize("wire", list(Wire))


def asked(call_id: str, text: str, name: str = "bash", **arguments: str) -> list[Item]:
    return [Assistant("", (Call(call_id, name, dict(arguments)),)), Result(call_id, text)]


def planned(wire: Wire, items: list[Item], threshold_tokens: int = 1000) -> tuple[LongOutput, ...]:
    return plan(request(wire, items), threshold_tokens)


def keys(wire: Wire, items: list[Item]) -> list[bytes]:
    return [output.key for output in planned(wire, items)]


@WIRES
def test_long_results_of_tools_are_found_with_what_the_tool_was_asked(wire: Wire):
    (output,) = planned(wire, [User("go"), *asked("c1", LONG, command="make")])

    assert (output.text, output.origin, output.is_unread) == (LONG, Origin("bash", command="make"), True)


@WIRES
def test_nothing_else_is(wire: Wire):
    items: list[Item] = [User(LONG), Assistant(LONG), *asked("c1", "short"), *asked("c2", "x", path=LONG)]

    assert planned(wire, items) == ()


@WIRES
def test_what_the_model_has_answered_is_read(wire: Wire):
    items: list[Item] = [User("go"), *asked("c1", LONG), *asked("c2", LONG + "2"), Result("c3", LONG + "3")]

    assert [output.is_unread for output in planned(wire, items)] == [False, True, True]


@WIRES
def test_a_place_is_the_same_in_every_later_request(wire: Wire):
    items: list[Item] = [User("go"), *asked("c1", LONG), *asked("c2", LONG + "2")]
    more: list[Item] = [*items, Assistant("done"), User("next"), *asked("c3", LONG + "3")]

    assert keys(wire, more)[:2] == keys(wire, items)


@WIRES
def test_the_same_text_in_another_place_is_another(wire: Wire):
    same_id: list[Item] = [User("go"), *asked("call_0", LONG), *asked("call_0", LONG)]
    conversations = [plan(request(wire, same_id), 1000, name) for name in (b"one", b"another")]

    assert len({output.key for found in conversations for output in found}) == 4


@WIRES
@pytest.mark.parametrize("name", ["recover_text", "mcp__pruner__recover_text", "recover_range"])
def test_what_was_recovered_is_left_alone_and_the_old_cut_keeps_its_place(wire: Wire, name: str):
    items: list[Item] = [User("go"), *asked("c1", LONG)]
    again: list[Item] = [*items, *asked("c2", LONG, name, prune_id="prn_0123456789abcdef")]

    assert [output.whole_because for output in planned(wire, again)] == ["", "recovered"]
    assert keys(wire, again)[0] == keys(wire, items)[0]


@WIRES
def test_a_result_belongs_to_the_call_before_it(wire: Wire):
    items: list[Item] = [User("go"), *asked("call_0", LONG, command="make"), *asked("call_0", LONG, "recover_text")]

    assert [output.whole_because for output in planned(wire, items)] == ["", "recovered"]
    assert planned(wire, items[:3])[0].key == planned(wire, items)[0].key


@WIRES
def test_whoever_asks_for_the_same_text_again_gets_all_of_it(wire: Wire):
    items: list[Item] = [User("go"), *asked("c1", LONG), *asked("c2", LONG)]

    assert [output.whole_because for output in planned(wire, items)] == ["", "asked_again"]


@WIRES
def test_what_a_client_tells_the_model_behind_a_result_is_left_alone(wire: Wire):
    reminder = "\n\n<system-reminder>\nMind the gap.\n</system-reminder>"
    (output,) = planned(wire, [User("go"), *asked("c1", f"{LONG}{reminder}{reminder}\n")])

    assert output.text.rstrip() == LONG.rstrip()


@WIRES
def test_sections_in_a_users_text_are_found_and_the_words_around_are_not(wire: Wire):
    (output,) = planned(wire, [User(f"Why?\n<console>{LONG}</console>\nTell me.")])

    assert (output.text, output.origin) == (LONG, Origin("console"))


def test_results_told_as_text_are_found():
    blocks = [{"type": "text", "text": "[execute_command for 'npm test'] Result:"}, {"type": "text", "text": LONG}]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": blocks}]}).encode()

    (output,) = plan(parse(body, Wire.MESSAGES), 1000)

    assert (output.text, output.origin) == (LONG, Origin("execute_command", command="npm test"))


def test_a_recovery_told_as_text_is_left_alone():
    said = "<use_mcp_tool>\n<tool_name>recover_text</tool_name>\n</use_mcp_tool>"
    blocks = [{"type": "text", "text": "[use_mcp_tool for 'pruner'] Result:"}, {"type": "text", "text": LONG}]
    messages = [{"role": "assistant", "content": said}, {"role": "user", "content": blocks}]
    body = json.dumps({"model": "m", "messages": messages}).encode()

    assert [o.whole_because for o in plan(parse(body, Wire.MESSAGES), 1000)] == ["recovered"]


def test_images_and_odd_bodies_are_left_alone():
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 9000}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [image]}
    messages = [{"role": "user", "content": [result]}, {"role": "user"}, 7, "text", {"role": "user", "content": 7}]
    body = json.dumps({"model": "m", "messages": messages}).encode()

    assert plan(parse(body, Wire.MESSAGES), 1000) == ()


@WIRES
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("exec", {"input": "const r = await tools.mcp__pruner__recover_text({prune_id: id}); text(r)"}),
        ("Bash", {"command": "kimi-proxy recover prn_0123456789abcdef"}),
        ("WebFetch", {"url": "http://127.0.0.1:8000/api/mask/msk_0123456789abcdef"}),
        ("use_mcp_tool", {"tool": "recover_text", "with": {"id": "prn_0123456789abcdef"}}),
    ],
)
def test_what_was_recovered_stays_whole_whatever_it_was_called_through(wire: Wire, name: str, arguments: JsonObject):
    items: list[Item] = [User("go"), Assistant("", (Call("c1", name, arguments),)), Result("c1", LONG)]

    assert [output.whole_because for output in planned(wire, items)] == ["recovered"]


def test_codex_s_script_that_recovers_stays_whole_and_another_does_not():
    """Its script is free text, and its result has a block that says how it ended."""
    asked = json.loads(request(Wire.RESPONSES, [User("go")]).body)
    scripts = (
        'text(await tools.mcp__pruner__recover_text({prune_id: "x"}))',
        'text(await tools.exec_command({cmd: "x"}))',
    )
    for at, script in enumerate(scripts):
        blocks = ["Script completed\nWall time 0.1 seconds\nOutput:\n", LONG + str(at)]
        output = [{"type": "input_text", "text": text} for text in blocks]
        asked["input"] += [
            {"type": "custom_tool_call", "call_id": f"c{at}", "name": "exec", "input": script},
            {"type": "custom_tool_call_output", "call_id": f"c{at}", "output": output},
        ]
    found = plan(parse(json.dumps(asked).encode(), Wire.RESPONSES), 1000)

    assert [(output.text, output.whole_because) for output in found] == [(LONG + "0", "recovered"), (LONG + "1", "")]


WRAPPED = [
    ("Chunk ID: 3f2a\nWall time: 0.05 seconds\nProcess exited with code 0\nOriginal token count: 900\nOutput:\n", ""),
    ("Wall time: 0.05 seconds\nProcess exited with code 1\nOutput:\nTotal output lines: 100\n\n", ""),
    (
        "Command: cat app.log\nDirectory: (root)\nOutput: ",
        "\nError: (none)\nExit Code: 0\nSignal: (none)\nProcess Group PGID: (none)",
    ),
    ("<returncode>0</returncode>\n<output>\n", "\n</output>"),
    ("", "\n<exited with exit code 0>"),
]


@WIRES
@pytest.mark.parametrize(("head", "tail"), WRAPPED)
def test_what_an_agent_says_around_a_result_is_no_part_of_it(wire: Wire, head: str, tail: str):
    inner, reminder = LONG.rstrip(), "\n<system-reminder>be brief</system-reminder>"
    (output,) = planned(wire, [User("go"), *asked("c1", f"{head}{inner}{tail}{reminder}")])

    assert (output.head, output.text.rstrip(), output.tail.rstrip()) == (head, inner, tail)
    assert (output.start, output.end) == (0, len(f"{head}{inner}{tail}\n"))


def test_a_result_that_looks_like_a_head_alone_stays_a_result():
    text = "Command: ls\n" * 400
    (output,) = planned(Wire.CHAT, [User("go"), *asked("c1", text)])

    assert output.head + output.text + output.tail == text and len(output.text) > 4000
