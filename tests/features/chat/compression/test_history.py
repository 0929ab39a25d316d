"""Where a conversation can be cut, and how it is known again."""

import json

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.features.chat.compression import History

WIRES = list(Wire)
AGENT: list[Item] = [
    User("fix it"),
    Assistant("", (Call("a"),)),
    Result("a", "one"),
    Assistant("", (Call("b"), Call("c"))),
    Result("b", "two"),
    Result("c", "three"),
    Assistant("done"),
    User("thanks, now the docs"),
]


# In the responses API each call is an item of its own: a step begins with the first of them.
LAST = {
    Wire.CHAT: ["c", "done"],
    Wire.MESSAGES: ["c", "done"],
    Wire.RESPONSES: ["b", "done"],
    Wire.GEMINI: ["c", "done"],
}


def said(history: History, places: tuple[int, ...]) -> list[str]:
    return [history.messages[at].parts[0].text for at in places]


@pytest.mark.parametrize("wire", WIRES)
def test_exchanges_begin_where_somebody_speaks(wire: Wire):
    history = History(request(wire, AGENT))

    assert said(history, history.exchanges) == ["fix it", "thanks, now the docs"]


@pytest.mark.parametrize("wire", WIRES)
def test_steps_begin_where_the_model_goes_on_after_results(wire: Wire):
    history = History(request(wire, AGENT))

    assert [history.messages[at].parts[-1].call_id or said(history, (at,))[0] for at in history.steps] == LAST[wire]


def test_there_is_no_cut_between_a_call_and_a_result_that_comes_late():
    items: list[Item] = [
        User("go"),
        Assistant("", (Call("a"), Call("late"))),
        Result("a", "one"),
        User("hurry up"),
        Result("late", "two"),
        Assistant("done"),
    ]

    assert History(request(Wire.CHAT, items)).exchanges == (0,)


def test_calls_that_are_numbered_anew_in_every_turn_are_told_apart():
    turn: list[Item] = [User("go"), Assistant("", (Call("call_0"),)), Result("call_0", "x"), Assistant("done")]

    assert History(request(Wire.CHAT, [*turn, *turn, *turn])).exchanges == (0, 4, 8)


def test_several_things_that_are_said_in_a_row_are_one():
    assert History(request(Wire.CHAT, [User("a"), User("b"), Assistant("c"), User("d")])).exchanges == (0, 3)


@pytest.mark.parametrize("wire", WIRES)
def test_a_history_is_known_again_when_old_results_were_shortened(wire: Wire):
    shortened = [Result(item.id, "[cleared]") if isinstance(item, Result) else item for item in AGENT]

    one, other = (History(request(wire, items)) for items in (AGENT, shortened))

    assert one.fingerprint(5) == other.fingerprint(5)


@pytest.mark.parametrize("wire", WIRES)
def test_a_history_in_which_somebody_said_something_else_is_another(wire: Wire):
    changed = [User("break it"), *AGENT[1:]]

    assert History(request(wire, AGENT)).fingerprint(3) != History(request(wire, changed)).fingerprint(3)


def test_a_reminder_that_a_client_adds_later_changes_nothing():
    def told(*blocks: str) -> bytes:
        content = [{"type": "text", "text": block} for block in blocks]
        return parse_messages([{"role": "user", "content": content}]).fingerprint(1)

    assert told("fix it") == told("fix it", "<system-reminder>todo</system-reminder>") != told("fix this")


def parse_messages(messages: list[object]) -> History:
    return History(parse(json.dumps({"model": "m", "messages": messages}).encode(), Wire.MESSAGES))


def test_instructions_of_the_client_in_the_first_message_are_a_preamble():
    items: list[Item] = [
        User("# AGENTS.md instructions\nbe kind"),
        User("go"),
        Assistant("ok"),
        User("<environment_context>"),
    ]

    assert History(request(Wire.RESPONSES, items)).preamble == (0,)


@pytest.mark.parametrize("empty", ['"content":[]', '"content":null', '"is_error":false'])
def test_a_result_that_says_nothing_is_a_result_all_the_same(empty: str):
    """Anthropic refuses results whose call is gone."""
    result = f'{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"a",{empty}}}]}}'
    call = '{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"touch","input":{}}]}'
    said = f'{{"role":"user","content":"go"}},{call},{result},{{"role":"assistant","content":"done"}}'
    history = History(parse(f'{{"model":"m","messages":[{said}]}}'.encode(), Wire.MESSAGES))

    assert history.exchanges == (0,)
    assert history.steps == (3,)
