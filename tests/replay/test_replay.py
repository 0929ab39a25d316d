"""Whole conversations, replayed: what leaves for the provider is byte for byte what left before a change of ours.

`golden.json` holds a digest of each request, `accounts.json` one of what is noted of it. After a change that is meant
to alter bytes, `python -m tests.replay.golden --accept` writes them again and names the conversations that differ.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from tests.replay.golden import ACCOUNTS, GOLDEN, accounts, digests
from tests.replay.player import Played, Player
from tests.replay.stories import COLD_S, Story, Turn, stories
from tests.support.conversations import results

from kimi_proxy.core.chat import Request, Wire

COMPRESSED = '{"role": "user"'  # a history of messages
STORIES = {story.name: story for story in stories()}


@pytest.mark.parametrize("name", list(STORIES))
async def test_a_conversation_leaves_in_the_bytes_in_which_it_always_left(name: str, tmp_path: Path):
    story = STORIES[name]
    played = await Player(story, tmp_path).play()

    assert digests(played) == json.loads(GOLDEN.read_text())[name]
    assert accounts(played) == json.loads(ACCOUNTS.read_text())[name], "and is accounted as it was"
    assert [sent.missing for sent in played.sent if sent.missing] == [], "on disk before it leaves"
    read = {text for body in played.received for text in results(Request(story.wire, body)).values()}
    restored = {text for text in played.recovered.values() if not text.startswith(COMPRESSED)}
    assert restored <= read, "every marker restores what the client sent"
    assert changed_warm_prefixes(story, played) == story.breaks


def changed_warm_prefixes(story: Story, played: Played) -> set[int]:
    """Return the turns whose request does not begin with the one before, although the cache was warm."""
    wire = Wire.CHAT if story.is_translated else story.wire
    turns = [step for step in story.steps if isinstance(step, Turn)]
    threads: dict[tuple[str, ...], list[tuple[int, list[tuple[str, ...]]]]] = {}
    for sent in {sent.turn: sent for sent in reversed(played.sent)}.values():
        request = Request(wire, sent.body)
        messages = [(message.role, *(part.text for part in message.parts)) for message in request.messages]
        threads.setdefault(messages[1 if wire is Wire.CHAT else 0], []).append((sent.turn, messages))
    changed: set[int] = set()
    for thread in threads.values():
        for (_, before), (turn, now) in pairwise(sorted(thread)):
            if turns[turn].pause_s < COLD_S and now[: len(before)] != before:
                changed.add(turn)
    return changed
