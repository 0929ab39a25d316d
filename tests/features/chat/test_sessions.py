"""Requests of one conversation are known as such, and those of two are told apart.

Sessions are called by the person's own words, short, and without secrets.
"""

import json
import time
from collections.abc import Mapping

import pytest
from tests.support.conversations import Assistant, User, request

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.chat.sessions import (
    LOCAL_IDS,
    MAX_TITLE_CHARS,
    Session,
    answers_in,
    directory_of,
    family,
    is_session_id,
    session_of,
    title_of,
)


def session(
    wire: Wire, fields: Mapping[str, JsonValue], headers: Mapping[bytes, bytes] | None = None, provider: str = "p"
) -> Session:
    return session_of(
        parse(json.dumps({"model": "kimi-k2", **fields}).encode(), wire), headers or {}, provider, LOCAL_IDS
    )


def conversation(*words: str, system: str = "be brief") -> list[JsonValue]:
    said: list[JsonValue] = [{"role": "system", "content": system}]
    return said + [{"role": "assistant" if i % 2 else "user", "content": word} for i, word in enumerate(words)]


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({}, {b"x-session-id": b"mine"}),
        ({}, {b"session_id": b"mine"}),
        ({}, {b"thread-id": b"mine", b"session-id": b"of many threads"}),
        ({"metadata": {"session_id": "mine"}}, {}),
        ({"external_session_id": "mine"}, {}),
        ({"external_session_id": "other", "metadata": {"session_id": "other"}}, {b"x-session-id": b"mine"}),
        ({"external_session_id": "other", "metadata": {"session_id": "mine"}}, {b"x-session-id": b" "}),
    ],
)
def test_a_name_that_the_client_gives_is_taken(fields: Mapping[str, JsonValue], headers: Mapping[bytes, bytes]):
    assert session(Wire.CHAT, fields, headers).id == LOCAL_IDS.session_named("mine").id


def test_an_endless_name_is_cut_short():
    assert len(session(Wire.CHAT, {}, {b"x-session-id": b"x" * 10_000}).name) == 200


def test_a_name_with_half_of_a_surrogate_pair_is_one_that_can_be_written_down():
    assert LOCAL_IDS.session_named("caf\udce9") == LOCAL_IDS.session_named("caf?")


def test_the_id_of_a_session_names_it():
    began = session(Wire.CHAT, {"messages": conversation("hi")})
    mine = session(Wire.CHAT, {}, {b"x-session-id": b"mine"})

    assert all(map(is_session_id, (began.id, mine.id)))
    assert session(Wire.CHAT, {}, {b"x-session-id": began.id.encode()}).id == began.id
    assert session(Wire.CHAT, {}, {b"x-session-id": mine.id.encode()}).id == mine.id


def test_a_conversation_that_moves_to_another_client_stays_in_its_session():
    def spelt(ascii_only: bool) -> Session:
        asked = {"model": "kimi-k2", "messages": conversation("où ça ?")}
        return session_of(parse(json.dumps(asked, ensure_ascii=ascii_only).encode(), Wire.CHAT), {}, "p", LOCAL_IDS)

    assert spelt(True) == spelt(False)


def test_what_the_system_adds_later_begins_nothing():
    turn = conversation("hi", "hello", "and now?")

    assert session(Wire.CHAT, {"messages": turn}) == session(
        Wire.CHAT, {"messages": [*turn, {"role": "system", "content": "hurry"}]}
    )


def test_a_conversation_goes_on_in_its_session():
    turns = [
        conversation("hi"),
        conversation("hi", "hello", "and now?"),
        conversation("hi", "hello", "and now?", "so", "ok"),
    ]

    assert len({session(Wire.CHAT, {"messages": turn}) for turn in turns}) == 1


def test_a_larger_sibling_takes_the_conversation_over():
    asked = {"messages": conversation("hi")}

    assert session(Wire.CHAT, asked) == session(Wire.CHAT, {**asked, "model": "moonshotai/kimi-k2.5-turbo"})


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": conversation("hi!")},
        {"messages": conversation("hi", system="be long")},
        {"messages": conversation("hi"), "model": "gpt-5"},
        {"messages": conversation()},
    ],
)
def test_what_began_otherwise_is_another_session(fields: Mapping[str, JsonValue]):
    assert session(Wire.CHAT, fields) != session(Wire.CHAT, {"messages": conversation("hi")})


def test_the_same_words_to_another_provider_are_another_session():
    asked = {"messages": conversation("hi")}

    assert session(Wire.CHAT, asked) != session(Wire.CHAT, asked, provider="q")


def test_marks_for_the_cache_and_a_fickle_first_line_change_nothing():
    def turn(line: str, mark: bool) -> Session:
        block = {"type": "text", "text": "hi", **({"cache_control": {"type": "ephemeral"}} if mark else {})}
        system = [{"type": "text", "text": f"x-anthropic-billing-header: {line}"}, {"type": "text", "text": "be brief"}]
        return session(Wire.MESSAGES, {"system": system, "messages": [{"role": "user", "content": [block]}]})

    assert turn("cch=1", True) == turn("cch=2", False)


def test_a_reminder_of_the_client_is_no_part_of_the_beginning():
    """Without an id, a session goes on over midnight, as in Qwen Code and Gemini CLI."""

    def asked(first: str, with_reminders: bool = False) -> str:
        return session_of(request(Wire.CHAT, [User(first)]), {}, "kimi", LOCAL_IDS, with_reminders).id

    monday, tuesday = (
        f"<system-reminder>\n{day}\n</system-reminder>\nFix the parser." for day in ("Monday", "Tuesday")
    )

    assert asked(monday) == asked(tuesday) == asked("Fix the parser.") == "ses_jse2rgpp1bmy4qjh"
    assert asked(monday) != asked(monday.replace("Fix", "Write"))
    assert asked(monday, with_reminders=True) == "ses_sjj5fmb49sztejet", "as versions before named it"


def test_what_the_system_says_later_does_not_begin_another_conversation():
    later = [*conversation("hi", "hello"), {"role": "system", "content": "remember"}]

    assert session(Wire.CHAT, {"messages": later}) == session(Wire.CHAT, {"messages": conversation("hi")})


def test_instructions_and_input_are_the_beginning_of_a_response():
    first = session(Wire.RESPONSES, {"instructions": "a", "input": "hi"})

    assert first == session(Wire.RESPONSES, {"instructions": "a", "input": [{"role": "user", "content": "hi"}]})
    assert first != session(Wire.RESPONSES, {"instructions": "b", "input": "hi"})


@pytest.mark.parametrize(
    ("model", "word"), [("kimi-k2.5", "kimi"), ("moonshotai/Kimi-K2", "kimi"), ("gpt-5", "gpt"), ("4o", "4o"), ("", "")]
)
def test_the_family_of_a_model_is_the_word_it_begins_with(model: str, word: str):
    assert family(model) == word


TOOLS: JsonValue = [{"name": "Read", "input_schema": {}}]
CLAUDE = {b"x-claude-code-session-id": b"3fe3571c-7ab6"}


def claude(headers: Mapping[bytes, bytes] = CLAUDE, **fields: JsonValue) -> Session:
    said: JsonValue = [{"role": "user", "content": "do it"}]
    return session(Wire.MESSAGES, {"messages": said, "tools": TOOLS, **fields}, headers)


def test_two_runs_of_claude_code_with_the_same_words_are_two_sessions():
    assert claude() == LOCAL_IDS.session_named("3fe3571c-7ab6")
    assert claude() != claude({b"x-claude-code-session-id": b"81e2-7ab6"})
    user = json.dumps({"device_id": "f954", "session_id": "3fe3571c-7ab6"})
    assert claude({}, metadata={"user_id": user}) == claude()
    assert claude({}, metadata={"user_id": "somebody"}) == claude({}, metadata={"user_id": '{"session_id": 1'})


def test_a_sub_agent_has_a_session_of_its_own_that_names_its_parent():
    child = claude({**CLAUDE, b"x-claude-code-agent-id": b"a1"})
    grandchild = claude({**CLAUDE, b"x-claude-code-agent-id": b"a2", b"x-claude-code-parent-agent-id": b"a1"})

    assert (child.name, child.parent) == ("3fe3571c-7ab6/a1", claude().id)
    assert (grandchild.name, grandchild.parent) == ("3fe3571c-7ab6/a2", child.id)


def test_what_an_agent_asks_without_its_tools_is_on_the_side():
    title = claude(tools=[])

    assert (title.name, title.parent) == ("3fe3571c-7ab6/side", claude().id)
    assert claude({b"x-session-id": b"mine"}, tools=[]) == LOCAL_IDS.session_named("mine")


RULES: JsonValue = [
    {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.328;"},
    {"type": "text", "text": "You are a security monitor for autonomous AI coding agents.\n\n## Context\n"},
]


def test_the_safety_checks_of_auto_mode_are_a_session_of_their_own_beside_the_one_they_judge():
    of_main = claude(tools=[], system=RULES)
    of_sub_agent = claude({**CLAUDE, b"x-claude-code-agent-id": b"a1"}, tools=[], system=RULES)
    quoted = claude(system=RULES)  # somebody works on these rules

    assert (of_main.name, of_main.parent) == ("3fe3571c-7ab6/checks", claude().id)
    assert of_sub_agent.name == "3fe3571c-7ab6/a1/checks"
    assert of_sub_agent.parent == claude({**CLAUDE, b"x-claude-code-agent-id": b"a1"}).id
    assert quoted == claude()


@pytest.mark.parametrize("key", ["session_2cbfaf85-5069-4cd2-8479-65b03c958e20", "ses_61acf2b3dffeQ2Xk8TnVbYhR"])
def test_a_key_of_the_prompt_cache_that_is_made_for_a_conversation_names_it(key: str):
    tools: JsonValue = [{"type": "function", "function": {"name": "read"}}]
    began = {"messages": conversation("hi"), "prompt_cache_key": key}

    assert session(Wire.CHAT, {**began, "tools": tools}) == LOCAL_IDS.session_named(key)
    assert session(Wire.CHAT, began).parent == LOCAL_IDS.session_named(key).id


@pytest.mark.parametrize("key", ["my-app-in-production-2", "01a1e21b-0e3b-7051-8630-7fffc8276c97"])
def test_a_key_of_the_prompt_cache_that_an_application_or_a_user_has_for_all_names_none(key: str):
    mine, others = ({"messages": conversation(word), "prompt_cache_key": key} for word in "ab")

    assert session(Wire.CHAT, mine) != session(Wire.CHAT, others)
    assert session(Wire.CHAT, mine) != session(Wire.CHAT, {**mine, "prompt_cache_key": "another-app"})


def test_a_thread_of_codex_names_the_session_that_it_is_part_of():
    own = session(Wire.RESPONSES, {}, {b"thread-id": b"t-1", b"session-id": b"t-1"})
    other = session(Wire.RESPONSES, {}, {b"thread-id": b"t-2", b"session-id": b"t-1"})

    assert own == LOCAL_IDS.session_named("t-1")
    assert (other.name, other.parent) == ("t-2", own.id)


def said(*words: str, system: str = "") -> Request:
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": each} for each in words]
    return parse(json.dumps({"model": "m", "messages": messages}).encode(), Wire.CHAT)


@pytest.mark.parametrize("wire", Wire)
def test_a_session_is_called_by_the_first_words_of_the_person(wire: Wire):
    assert title_of(request(wire, [User("Fix the\n  VAT"), Assistant("done"), User("thanks")])) == "Fix the VAT"


def aider(*said: str, files: str = "I am not sharing any files that you can edit yet.") -> Request:
    """A request of aider's, which begins with its examples; its files stand before what was said last."""
    before = ["Change get_factorial() to use math.factorial", "To make this change we need to …"]
    before += ["I switched to a new code base. Please don't consider the above files or try to edit them.", "Ok."]
    texts = [*before, *said[:-1], files, "Ok.", said[-1]]
    messages = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
    raw = json.dumps({"model": "kimi-x", "messages": [{"role": "system", "content": "Act."}, *messages]})
    return parse(raw.encode(), Wire.CHAT)


def test_what_aider_says_itself_neither_names_nor_begins_a_session():
    first, other = aider("Fix the test."), aider("Rename it.")
    files = "I have *added these files to the chat* so you can go ahead and edit them."
    later = aider("Fix the test.", "Done.", "Now the docs.", files=files)
    ids = [session_of(each, {}, "p", LOCAL_IDS).id for each in (first, later, other)]

    assert [title_of(each) for each in (first, later, other)] == ["Fix the test.", "Fix the test.", "Rename it."]
    assert ids[0] == ids[1] != ids[2]
    assert (len(answers_in(first)), len(answers_in(later))) == (0, 1)


def test_a_conversation_is_known_by_its_first_answer_and_the_newest():
    many = request(Wire.CHAT, [item for at in range(20) for item in (User("Why?"), Assistant(f"{at}"), Assistant(""))])
    each = [request(Wire.CHAT, [User("Why?"), Assistant(f"{at}")]) for at in (0, *range(19, 11, -1))]

    assert answers_in(many) == tuple(hashed for one in each for hashed in answers_in(one))
    assert len(answers_in(many)) == 9


def test_a_title_ends_at_a_word_within_sixty_characters():
    title = title_of(said("Find out why the nightly import of invoices fails since the update of the database"))

    assert title == "Find out why the nightly import of invoices fails since the…"
    assert len(title) <= MAX_TITLE_CHARS
    assert len(title_of(said("x" * 500))) == MAX_TITLE_CHARS


@pytest.mark.parametrize(
    "first",
    [
        "<system-reminder>\nnever mind\n</system-reminder>\n",
        "<environment_context>\n<cwd>/work</cwd>\n</environment_context>",
        "# AGENTS.md instructions for /work\n<INSTRUCTIONS>be kind</INSTRUCTIONS>",
    ],
)
def test_what_an_agent_wraps_around_is_left_out(first: str):
    assert title_of(said(first, "Why is it slow?")) == "Why is it slow?"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-REDACTED",
        "ghp_0123456789abcdefABCDEF0123456789abcd",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "password: hunter2hunter2",
        "token=abc",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c",
    ],
)
def test_no_secret_is_in_a_title(secret: str):
    title = title_of(said(f"use {secret} now"))

    assert secret not in title
    assert title.startswith("use •••")


def test_the_password_of_an_address_is_masked():
    assert title_of(said("clone https://me:hunter2@git.example/x")) == "clone https://•••@git.example/x"


def test_without_a_word_of_the_person_there_is_no_title():
    assert title_of(said()) == ""
    assert title_of(said("<a>b</a>")) == ""


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("<env>\nWorking directory: /work/shop\nIs directory a git repo: Yes", "/work/shop"),
        ("Primary working directory: ~/shop\n", "~/shop"),
        ("<environment_context>\n  <cwd>/work/a b</cwd>", "/work/a b"),
        ("The current working directory is `/work/shop`.", "/work/shop"),
        ("# Current Working Directory (/work/shop) Files", "/work/shop"),
        ("Working directory: C:\\work\\shop\n", "C:\\work\\shop"),
        ("the working directory matters", ""),
    ],
)
def test_the_folder_is_read_where_the_client_names_it(text: str, folder: str):
    assert directory_of(said("hello", system=text)) == folder
    assert directory_of(said(text)) == folder


@pytest.mark.parametrize("piece", ["<a>", "<a></b>", "<a b", "<a1></a>", "</a>"])
def test_tags_that_nothing_closes_cost_linear_time(piece: str):
    began = time.process_time()
    title_of(said(piece * (200_000 // len(piece))))

    assert time.process_time() - began < 5  # each tag looked for to the end would take a minute
