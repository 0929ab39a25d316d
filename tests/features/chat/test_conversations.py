"""The name of a conversation: its session, and the user's first words without what the client puts among them."""

import json

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, body, request

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.conversations import (
    closest,
    first_words,
    name_conversation,
    result_marks,
    tool_results,
    without_reminders,
)

WIRES = pytest.mark.parametrize("wire", list(Wire))
WORDS = "Why does the test fail?"

# As clients of today write them, before and after a change.
REMINDERS = {
    "claude code": ("<system-reminder>\nToday's date is {}.\n</system-reminder>\n",),
    "claude code, several": (
        "<system-reminder>\n# claudeMd {}\n</system-reminder>\n",
        "<system-reminder>x</system-reminder>",
    ),
    "gemini cli": ("<session_context>\nToday's date is {}, 2026\n</session_context>",),
    "codex": (
        "# AGENTS.md instructions for /app\n\n<INSTRUCTIONS>\nRule {}.\n</INSTRUCTIONS>",
        "<environment_context>\n  <current_date>{}</current_date>\n</environment_context>",
    ),
    "kilo": ("\n\n<environment_details>\nMessage time: {}\n</environment_details>",),
    "cut off": ("<system-reminder>\nToday's date is {}.",),
}


def named(request: Request, session: str = "one") -> bytes:
    return name_conversation(session, request).name


def with_parts(*texts: str) -> Request:
    """Return a request to Anthropic whose first message has these parts."""
    made = json.loads(body(Wire.MESSAGES, [User(""), Assistant("So."), User("Next.")]))
    made["messages"][0]["content"] = [{"type": "text", "text": text} for text in texts]
    return parse(json.dumps(made).encode(), Wire.MESSAGES)


@pytest.mark.parametrize("client", REMINDERS)
def test_a_changed_reminder_leaves_the_name(client: str):
    monday, tuesday = ([text.format(day) for text in REMINDERS[client]] for day in ("Monday", "Tuesday, the 2nd"))

    assert named(with_parts(*monday, WORDS)) == named(with_parts(*tuesday, WORDS)) == named(with_parts(WORDS))
    assert named(with_parts(*monday, WORDS)) != named(with_parts(*monday, "Tidy up."))


@WIRES
def test_reminders_in_the_same_text_or_in_a_message_before_the_words_are_no_part_of_it(wire: Wire):
    plain = request(wire, [User(WORDS)])
    joined = request(wire, [User(f"<system-reminder>\nMonday\n</system-reminder>\n{WORDS}")])
    before = request(wire, [User("<environment_context>Monday</environment_context>"), User(WORDS)])

    assert first_words(joined) == first_words(request(wire, [User(f"{WORDS}\n<system-reminder>x</system-reminder>")]))
    assert first_words(before) == first_words(plain)


@WIRES
def test_what_follows_the_first_answer_never_changes_the_name(wire: Wire):
    only_reminders: list[Item] = [User("<system-reminder>\nMonday\n</system-reminder>")]
    greeted: list[Item] = [Assistant("Hello."), User(WORDS)]
    for begun in ([User(WORDS)], only_reminders, greeted):
        later: list[Item] = [*begun, Assistant("", (Call("c1"),)), Result("c1", "ok"), Assistant("So."), User("Next.")]

        assert named(request(wire, later)) == named(request(wire, begun))


def test_another_spelling_of_the_same_words_names_the_same_conversation():
    """Clients write other escapes, and add a newline when they resume a conversation."""
    asked = {"model": "m", "messages": [{"role": "user", "content": "où ça ?"}]}
    spelt = [parse(json.dumps(asked, ensure_ascii=ascii_only).encode(), Wire.CHAT) for ascii_only in (True, False)]
    resumed = request(Wire.CHAT, [User("où ça ?\n")])

    assert len({named(each) for each in (*spelt, resumed)}) == 1


@WIRES
def test_another_session_and_other_first_words_are_other_conversations(wire: Wire):
    one, other = request(wire, [User(WORDS)]), request(wire, [User("Tidy up.")])

    assert len({named(one, "s-1"), named(one, "s-2"), named(other, "s-1"), named(other, "s-2")}) == 4


def test_a_reminder_that_the_user_writes_about_is_the_user_s():
    asked = [f"What is a <system-reminder> in {place}?" for place in ("Claude Code", "Qwen Code")]

    assert len({named(with_parts(text)) for text in asked}) == 2
    assert without_reminders(asked[0]) == asked[0]


def test_an_answer_that_the_provider_keeps_is_remembered_in_one_place_whatever_is_sent_of_it():
    whole = request(Wire.RESPONSES, [User(WORDS)])
    end = request(Wire.RESPONSES, [Result("c1", "ok")], previous_response_id="resp_1")

    assert name_conversation("one", whole).place == name_conversation("one", end).place
    assert name_conversation("one", whole).name != name_conversation("one", end).name


@WIRES
def test_results_are_known_by_their_call_and_their_text(wire: Wire):
    def run(*results: tuple[str, str]) -> list[Item]:
        return [User(WORDS), *(each for id, text in results for each in (Assistant("", (Call(id),)), Result(id, text)))]

    first, read = marks(request(wire, run(("c1", "ok"), ("c2", "no"))))

    assert read == 1, "the second is new"
    assert marks(request(wire, run(("c1", "ok"), ("c2", "no"), ("c3", "ok"))))[0][:2] == first
    others, _ = marks(request(wire, run(("c2", "ok"), ("c1", "no"), ("c3", "ok"))))
    assert len(set(first)) == 2 and set(first).isdisjoint(others)


def marks(request: Request) -> tuple[list[bytes], int]:
    found, read = tool_results(request)
    return result_marks(found), read


def test_a_reminder_that_a_client_adds_to_a_result_does_not_make_it_another():
    texts = ("ok", "ok<system-reminder>\nDo not forget.\n</system-reminder>")
    plain, reminded = (
        marks(request(Wire.MESSAGES, [User(WORDS), Assistant("", (Call("c1"),)), Result("c1", text)])) for text in texts
    )

    assert plain == reminded


ONE, TWO, THREE = ("s-1", b"one"), ("s-2", b"two"), ("s-3", b"three")


@pytest.mark.parametrize(
    ("owners", "session", "expected"),
    [
        ({b"a": [ONE]}, "s-9", None),
        ({b"a": [ONE], b"b": [TWO]}, "s-9", None),
        ({b"a": [ONE], b"b": [ONE]}, "s-9", ONE),
        ({b"a": [ONE], b"b": [ONE], b"c": [ONE], b"d": [TWO], b"e": [TWO]}, "s-2", TWO),
        ({b"a": [ONE, TWO], b"b": [ONE, TWO]}, "s-9", ONE),
        ({b"a": [ONE, TWO], b"b": [ONE, TWO], b"c": [TWO]}, "s-9", TWO),
        ({b"a": [ONE], b"b": [THREE], b"c": [THREE]}, "s-1", THREE),
    ],
)
def test_the_conversation_that_shares_most_results_is_the_closest(
    owners: dict[bytes, list[tuple[str, bytes]]], session: str, expected: tuple[str, bytes] | None
):
    assert closest([b"a", b"b", b"c", b"d", b"e"], owners, session) == expected


def test_one_result_that_is_there_twice_counts_once():
    assert closest([b"a", b"a"], {b"a": [ONE]}, "s-9") is None


def test_a_long_text_of_open_reminders_takes_no_long_time():
    text: JsonValue = "x<system-reminder><session_context>" * 50_000

    assert without_reminders(str(text)) == text
