"""Where requests of a conversation first differ, and when a prompt cache is cold."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.features.chat.prompt_cache import (
    CacheMoment,
    Difference,
    ExplainedMiss,
    SentPrefix,
    describe_change,
    digests,
    explain_miss,
    first_difference,
    is_cold,
)
from kimi_proxy.features.models.known import cache_rules

SENT = SentPrefix(at=1000.0, cold_after_s=300.0, beginning=b"a")
WIRES = pytest.mark.parametrize("wire", list(Wire))
ITEMS: Sequence[Item] = [User("go"), Assistant("", (Call("c1", "bash"),)), Result("c1", "one\ntwo")]


def test_a_cache_is_cold_after_a_pause_that_was_longer_than_its_life():
    assert not is_cold(SENT, replace(SENT, at=1300.0))
    assert is_cold(SENT, replace(SENT, at=1300.5))


def test_the_life_that_counts_is_the_one_of_what_was_sent_before():
    hour = replace(SENT, cold_after_s=3600.0)

    assert not is_cold(hour, replace(SENT, at=2000.0))


def test_a_cache_is_cold_when_the_conversation_begins_otherwise():
    assert is_cold(SENT, replace(SENT, at=1001.0, beginning=b"compacted"))


def test_a_conversation_that_was_never_seen_is_cold_and_one_of_an_unknown_beginning_is_not():
    assert is_cold(None, SENT)
    assert not is_cold(replace(SENT, beginning=b""), replace(SENT, at=1001.0))


def test_where_nothing_was_cached_it_is_cold_at_once():
    assert is_cold(replace(SENT, cold_after_s=0.0), SENT)


def difference(before: Request, now: Request) -> Difference | None:
    found = first_difference(digests(before), digests(now))
    return found and describe_change(before, now, found)


@WIRES
def test_a_conversation_that_goes_on_does_not_differ(wire: Wire):
    before = request(wire, ITEMS)
    now = request(wire, [*ITEMS, Assistant("done"), User("next")])

    assert difference(before, now) is None


@WIRES
def test_the_first_message_that_changed_is_named_with_its_block_and_place(wire: Wire):
    before = request(wire, [*ITEMS, Assistant("done")])
    now = request(wire, [*ITEMS[:2], Result("c1", "one\nthree"), Assistant("done")])
    found = difference(before, now)

    assert found is not None and found.part == "message"
    assert found.cold_from == found.message == len(now.messages) - 2
    assert found.detail.endswith(", tool_result, character 5")


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("Today's date is 2026-11-17.", "Today's date is 2026-11-18.", "a date or a time"),
        ("gitStatus: clean", "gitStatus: M src/a.py", "a git status"),
        ("- b\n- a", "- a\n- b", "the same lines in another order"),
    ],
)
def test_what_clients_often_change_is_named_as_such(old: str, new: str, kind: str):
    found = difference(request(Wire.CHAT, [User(old)]), request(Wire.CHAT, [User(new)]))

    assert found is not None and found.detail.endswith(f": {kind}")


def test_marks_that_move_and_thinking_that_goes_are_no_difference():
    def asked(marked: int, thinking: bool) -> Request:
        mark = {"cache_control": {"type": "ephemeral"}}
        thought = [{"type": "thinking", "thinking": "hm", "signature": "s"}] if thinking else []
        said = [{"type": "text", "text": "yes"}]
        messages = [
            {"role": "user", "content": [{"type": "text", "text": "go", **(mark if marked == 0 else {})}]},
            {"role": "assistant", "content": [*thought, *said]},
            {"role": "user", "content": [{"type": "text", "text": "on", **(mark if marked == 2 else {})}]},
        ]
        return Request(Wire.MESSAGES, json.dumps({"model": "m", "messages": messages}).encode())

    assert difference(asked(0, True), asked(2, False)) is None


def test_a_deferred_tool_that_joins_is_no_difference_and_another_tool_is():
    def tools(*names: str, **more: object) -> Request:
        offered = [{"name": name, "input_schema": {}, **(more if name == "late" else {})} for name in names]
        return Request(Wire.MESSAGES, json.dumps({"model": "m", "tools": offered, "messages": []}).encode())

    assert difference(tools("a"), tools("a", "late", defer_loading=True)) is None
    assert difference(tools("a"), tools("a", "b")) == Difference("tools")


def test_who_pays_is_no_part_of_the_system_prompt():
    def system(first: str, second: str) -> Request:
        parts = [{"type": "text", "text": text} for text in (first, second)]
        return Request(Wire.MESSAGES, json.dumps({"model": "m", "system": parts, "messages": []}).encode())

    before = system("x-anthropic-billing-header: cch=1;", "You are an agent.")

    assert difference(before, system("x-anthropic-billing-header: cch=2;", "You are an agent.")) is None
    found = difference(before, system("x-anthropic-billing-header: cch=2;", "You are a cook."))
    assert found is not None and found.part == "system"


WARM = CacheMoment(b"", cache_rules("anthropic", "claude-opus-5"), None, pause_s=20.0, tokens_before=50_000)


def test_a_request_that_reads_what_was_there_before_is_no_miss():
    assert explain_miss(WARM, 52_000, 50_000, is_ours=False) is None
    assert explain_miss(WARM, 52_000, 46_000, is_ours=False) is None
    assert explain_miss(replace(WARM, tokens_before=0), 52_000, 0, is_ours=False) is None


@pytest.mark.parametrize(
    ("moment", "is_ours", "said", "expected"),
    [
        (replace(WARM, pause_s=700.0), False, "", ("expired", "after 700 s; it lives for 300 s")),
        (replace(WARM, difference=Difference("tools")), False, "", ("tools", "")),
        (replace(WARM, difference=Difference("message", 3, "a date")), True, "", ("message", "a date")),
        (replace(WARM, is_compacted=True, pause_s=None), False, "", ("compacted", "")),
        (WARM, True, "", ("ours", "")),
        (WARM, False, "", ("provider", "")),
        (WARM, False, "system_changed", ("system", "")),
    ],
)
def test_a_miss_has_a_cause(moment: CacheMoment, is_ours: bool, said: str, expected: tuple[str, str]):
    cause, detail = expected

    assert explain_miss(moment, 52_000, 10_000, is_ours, said) == ExplainedMiss(cause, 40_000, None, detail)  # type: ignore[arg-type]
