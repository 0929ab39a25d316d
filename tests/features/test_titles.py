"""What sessions are called: the person's own words, short, and without secrets."""

import json
import time

import pytest
from tests.conversations import Assistant, User, request

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.features.clients.titles import MAX_TITLE_CHARS, directory_of, title_of


def said(*words: str, system: str = "") -> Request:
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": each} for each in words]
    return parse(json.dumps({"model": "m", "messages": messages}).encode(), Wire.CHAT)


@pytest.mark.parametrize("wire", Wire)
def test_a_session_is_called_by_the_first_words_of_the_person(wire: Wire):
    assert title_of(request(wire, [User("Fix the\n  VAT"), Assistant("done"), User("thanks")])) == "Fix the VAT"


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
