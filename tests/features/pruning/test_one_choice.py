"""One choice for every way in: the same text, question and room leave the same lines, whatever shows them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Options, Origin, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.kinds import type_of
from kimi_proxy.features.pruning.room import room_for
from kimi_proxy.features.records.fitting import write_by_chars
from kimi_proxy.features.sanitizer.shorten import Task, shorten

PLAIN = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)
MARKER = re.compile(r"⟦PRUNÉ|\[KIMI_PROXY")


def _log(seed: int) -> str:
    lines = [f"2026-01-01 12:00:{n % 60:02} INFO item {n * seed % 97} of batch {n % 17} stored" for n in range(500)]
    lines[seed % 500] = f"2026-01-01 12:00:00 ERROR item {seed} was refused by the ledger"
    return "\n".join(lines) + "\n"


def _code(seed: int) -> str:
    return "\n\n".join(
        f"def part_{n}(request):\n    # {'the ledger' if n == seed % 90 else 'it'} comes first\n    return {n * seed}"
        for n in range(150)
    )


def _table(seed: int) -> str:
    return "name,state,total\n" + "".join(
        f"part_{n},{'late' if n == seed else 'paid'},{n * seed % 91}\n" for n in range(500)
    )


def _page(seed: int) -> str:
    return "\n\n".join(
        f"## Part {n}\n\nThe {'ledger' if n == seed % 80 else 'order'} of part {n} is kept." for n in range(160)
    )


TEXTS = {"log": _log, "code": _code, "table": _table, "page": _page}
GOALS = ("What does the ledger refuse?", "Which part is the largest?", "Quelle commande est en retard ?", "")


def _kept(shown: str) -> list[str]:
    return [line for line in shown.split("\n") if not MARKER.search(line)]


@pytest.mark.parametrize("kind", sorted(TEXTS))
@given(seed=st.integers(1, 400), goal=st.sampled_from(GOALS))
def test_the_same_lines_stay_whatever_the_way_in(kind: str, seed: int, goal: str):
    text, origin = TEXTS[kind](seed), Origin("bash", command="make report")
    before = tokens.count(text)
    question = Question(text, goal, type_of(origin, text), PLAIN, room=room_for(before))

    by_tools = engine.prune(question, "prn_0123456789abcdef")
    in_chat = shorten(Task(text, goal, origin, is_unread=False, threshold_tokens=200, preview_chars=200, seed=b"s"))
    found = engine.fit(question)
    assert found is not None
    by_chars = write_by_chars(text, found.gaps(text), "msk_0123456789abcdef")

    assert _kept(in_chat.shown) == _kept(by_tools.text) == _kept(by_chars)
    assert by_tools.tokens_after <= question.room * 1.05


def test_a_room_is_a_fifth_or_half_of_a_short_text_and_never_more_than_7000_tokens():
    assert [room_for(before) for before in (500, 3_000, 10_000, 30_000, 300_000)] == [400, 1_500, 3_500, 6_000, 7_000]
