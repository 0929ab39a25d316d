"""No reader stumbles over a text in which something is missing, and what it finds lies within the text."""

import random
import re
from collections.abc import Callable

import pytest
from tests.support.deep import IS_DEEP
from tests.support.records import KINDS, damaged

from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Options, Origin, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.kinds import type_of
from kimi_proxy.features.pruning.room import room_for
from kimi_proxy.features.records.formats import read_json, read_lines, read_ndjson, read_paragraphs, read_xml
from kimi_proxy.features.records.read import Rows, read
from kimi_proxy.features.records.tree import Node, descend
from kimi_proxy.features.sanitizer.shorten import Task, shorten

TIMES = 2000 if IS_DEEP else 25
Reader = Callable[[str], Node | None]
READERS: dict[str, Reader] = {
    "read": read,
    "read_json": read_json,
    "read_ndjson": read_ndjson,
    "read_xml": read_xml,
    "read_paragraphs": lambda text: read_paragraphs(Rows(text)),
    "read_lines": lambda text: read_lines(Rows(text)),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_text_is_read_as_far_as_it_goes(kind: str, reader: Reader):
    rng = random.Random(f"{kind} {TIMES}")
    for _ in range(TIMES):
        text = damaged(KINDS[kind], rng)
        root = reader(text)
        for node in descend(root) if root is not None else ():
            assert 0 <= node.start <= node.end <= len(text)


def test_every_kind_of_text_but_prose_logs_and_code_is_made_of_records():
    assert {kind for kind, text in KINDS.items() if read(text) is None} == {"prose", "log", "code"}


ANSWER = "zebra4711"
WORD = re.compile(r"[A-Za-z]{2,}")


def _asked(text: str, rng: random.Random) -> str:
    """Return a text five times as long with one of its words replaced by what answers."""
    long = text * 5
    words = list(WORD.finditer(long))
    if not words:
        return ""
    word = rng.choice(words)
    return long[: word.start()] + ANSWER + long[word.end() :]


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_damaged_text_the_answer_stays_within_the_room_by_every_way_in(kind: str):
    rng = random.Random(f"{kind} asked")
    origin, goal = Origin("bash", command="make report"), f'Where is "{ANSWER}"?'
    for _ in range(TIMES // 5):
        text = _asked(damaged(KINDS[kind], rng), rng)
        before = tokens.count(text)
        if before < 1000:
            continue
        options = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)
        asked = Question(text, goal, type_of(origin, text), options, room=room_for(before))
        task = Task(text, goal, origin, is_unread=False, threshold_tokens=500, preview_chars=200, seed=b"seed")
        of_answer = next(tokens.count(line) for line in text.split("\n") if ANSWER in line) + 200
        pruned = engine.prune(asked, "prn_0123456789abcdef")
        in_chat = shorten(task)
        hurried = shorten(task, is_hurried=True)

        for shown, after in (
            (pruned.text, pruned.tokens_after),
            (in_chat.shown, in_chat.tokens_after),
            (hurried.shown, hurried.tokens_after),
        ):
            assert ANSWER in shown
            assert after <= max(1.1 * asked.room, asked.room + 100, of_answer) or shown == text
