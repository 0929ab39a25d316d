"""A summary stands for old messages in the same bytes in every request, and calls keep their results."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.conversations import SYSTEM, Assistant, Call, Item, Result, User, request, texts

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.features.chat.compression import CompressionPlan, History, Preset, apply_compression, can_compress, plan
from kimi_proxy.features.chat.pipeline import ActiveCompression, Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target

WIRES = list(Wire)
EXCHANGE: list[Item] = [User("ask"), Assistant("", (Call("a"),)), Result("a", "x" * 50), Assistant("answer")]


def draft(request: Request) -> Draft:
    return Draft(request, Target("p", "m"), Session("s"), LOCAL)


def decided(request: Request, cut: int, kept: tuple[int, ...] = ()) -> ActiveCompression:
    return ActiveCompression("cmp_1", cut, kept, History(request).fingerprint(cut), "the story so far")


@pytest.mark.parametrize("wire", WIRES)
def test_the_summary_stands_where_the_old_messages_stood(wire: Wire):
    whole = request(wire, [*EXCHANGE, *EXCHANGE, User("now")])
    cut = History(whole).exchanges[1]

    done = apply_compression(draft(whole), decided(whole, cut), offers_tool=False)

    assert [text for text in texts(done.request) if text not in (SYSTEM, "")] == [
        "the story so far",
        *_words(EXCHANGE),
        "now",
    ]
    assert done.request.system[0].text == SYSTEM
    assert done.compression is not None and done.uncompressed is not None and done.uncompressed.request is whole


def _words(items: list[Item]) -> list[str]:
    return [text for text in texts(request(Wire.CHAT, items)) if text not in (SYSTEM, "")]


@pytest.mark.parametrize("wire", WIRES)
def test_requests_that_follow_begin_with_the_same_bytes(wire: Wire):
    first, second = (request(wire, [*EXCHANGE, *EXCHANGE, User("now"), *more]) for more in ([], [Assistant("yes")]))
    cut = decided(first, History(first).exchanges[1])

    one, other = (apply_compression(draft(each), cut, offers_tool=False).request.body for each in (first, second))

    end = one.rindex(b"now") + 3
    assert one[:end] == other[:end]


def test_all_other_bytes_stay_as_the_client_wrote_them():
    odd = (
        b'{ "model":"m","x":1e400,"messages":[ {"role":"user","content":"old"} ,{"role":"assistant","content":"o"}\n,  '
    )
    odd += b'{"role":"user", "content":"n\\u0065w"} ] , "y":-0}'
    whole = Request(Wire.CHAT, odd)

    done = apply_compression(draft(whole), decided(whole, 2), offers_tool=False)

    assert done.request.body == odd.replace(
        odd[odd.index(b'{"role"') : odd.index(b'{"role":"user", ')], b'{"role":"user","content":"the story so far"},'
    )


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_that_tells_another_history_gets_its_own(wire: Wire):
    whole = request(wire, [*EXCHANGE, User("now")])
    cut = decided(whole, History(whole).exchanges[1])

    other = request(wire, [User("something else"), *EXCHANGE[1:], User("now")])
    shorter = request(wire, EXCHANGE[:1])

    for changed in (other, shorter):
        done = apply_compression(draft(changed), cut, offers_tool=False)
        assert done.request is changed
        assert done.reasons == ("history_changed",)


def test_system_messages_stay_where_they_are():
    said = [{"role": r, "content": c} for r, c in [("system", "a"), ("user", "b"), ("system", "c"), ("user", "d")]]
    whole = Request(Wire.CHAT, json.dumps({"model": "m", "messages": said}).encode())

    done = apply_compression(draft(whole), decided(whole, 1), offers_tool=False)

    assert texts(done.request) == ["a", "c", "the story so far", "d"]


def test_the_way_back_is_offered_with_the_first_cut():
    whole = request(Wire.CHAT, [*EXCHANGE, User("now")])

    done = apply_compression(draft(whole), decided(whole, 4), offers_tool=True)

    assert done.own_tool == done.request.tool_names[-1] == "recover_text"
    assert (
        apply_compression(replace(draft(whole), own_tool="mine"), decided(whole, 4), True).request.tool_names
        == whole.tool_names
    )


def test_what_the_provider_keeps_cannot_be_compressed():
    assert can_compress(request(Wire.RESPONSES, EXCHANGE))
    assert not can_compress(request(Wire.RESPONSES, EXCHANGE, previous_response_id="resp_1"))
    assert not can_compress(request(Wire.RESPONSES, EXCHANGE, conversation="conv_1"))
    assert not can_compress(request(Wire.RESPONSES, EXCHANGE, conversation={"id": "conv_1"}))
    assert can_compress(request(Wire.RESPONSES, EXCHANGE, previous_response_id=None, conversation=None))


@st.composite
def conversations(draw: st.DrawFn) -> list[Item]:
    """People, models with several calls at once, results that come late or in another order, and an open end."""
    items: list[Item] = []
    for turn in range(draw(st.integers(1, 12))):
        items += [User(f"ask {turn} " + "w " * draw(st.integers(1, 200))) for _ in range(draw(st.integers(0, 2)))]
        for step in range(draw(st.integers(0, 4))):
            calls = tuple(Call(f"c{turn}_{step}_{n}") for n in range(draw(st.integers(1, 3))))
            items.append(Assistant(draw(st.sampled_from(["", "let me see"])), calls))
            order = draw(st.permutations(calls))
            items += [Result(call.id, "r " * draw(st.integers(1, 300))) for call in order]
        if draw(st.booleans()):
            items.append(Assistant(f"answer {turn}"))
    return [User("begin"), *items, User("go on")]


@settings(max_examples=120, deadline=None)
@given(conversations(), st.sampled_from(WIRES), st.integers(1, 6), st.booleans())
def test_every_call_stays_with_its_results(items: list[Item], wire: Wire, keep: int, is_full: bool):
    whole = request(wire, items)
    history = History(whole)
    weights = [sum(len(part.text) for part in message.parts) // 2 + 4 for message in history.messages]
    preset = Preset("compression", 0 if is_full else 1000, keep, 1500, asks_provider=False)
    found = plan(history, weights, sum(weights), sum(weights), preset, sum(weights))
    if found is None:
        return
    done = apply_compression(draft(whole), decided_by(whole, found), offers_tool=False).request

    assert pairs(done) <= pairs(whole)
    assert calls(done) == results(done)
    assert texts(done)[-1] == "go on"
    assert done.messages[-1].role == "user"


def decided_by(whole: Request, found: CompressionPlan) -> ActiveCompression:
    return decided(whole, found.cut, found.kept)


def calls(request: Request) -> set[str]:
    return {part.call_id for message in request.messages for part in message.parts if part.kind == "tool_call"}


def results(request: Request) -> set[str]:
    return {part.call_id for message in request.messages for part in message.parts if part.kind == "tool_result"}


def pairs(request: Request) -> set[str]:
    return calls(request) & results(request)
