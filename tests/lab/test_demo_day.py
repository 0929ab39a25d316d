"""The written day holds together: every turn has its answer, and the same seed is the same day."""

from kimi_proxy.core import tokens
from kimi_proxy.lab.demo_day import AT_THE_DESK, RECOVER, CompressSession, Prune, Say, Script, day


def test_the_same_seed_is_the_same_day_and_another_is_another():
    assert day(7) == day(7)
    assert day(7) != day(8)
    assert day(7, 2) != day(7)


def test_every_turn_is_played_and_no_turn_is_played_that_is_not_written():
    today = day(7)
    said = [act.conversation for act in today.acts if isinstance(act, Say)]

    assert {name: said.count(name) for name in today.conversations} == {
        name: len(conversation.turns) for name, conversation in today.conversations.items()
    }


def test_the_model_knows_what_to_say_to_every_message():
    today = day(7)
    script = Script(today.conversations.values())

    for conversation in today.conversations.values():
        for turn in conversation.turns:
            assert script.after_text[turn.said].text == turn.replies[0].text
            assert not turn.replies[-1].calls
    assert set(script.calls) == set(script.after_call)
    assert len(script.after_text) == sum(len(c.turns) for c in today.conversations.values())


def test_every_tool_prints_something_but_those_that_are_really_asked():
    calls = Script(day(7).conversations.values()).calls.values()

    assert {call.tool for call in calls if not call.prints} == {*AT_THE_DESK, RECOVER}


def test_a_day_has_large_outputs_a_failure_a_question_to_the_pruner_and_a_compression():
    today = day(7)
    calls = list(Script(today.conversations.values()).calls.values())

    assert max(tokens.count(call.prints) for call in calls) > 5_000
    assert any(call.failed and "1 failed" in call.prints for call in calls)
    assert {type(act) for act in today.acts} == {Say, Prune, CompressSession}
