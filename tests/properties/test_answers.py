"""Failures and what a goal quotes stay in every place that cuts a log: by a ratio, in chats, hooks and the gateway."""

import random
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import often

from kimi_proxy.core import json, markers
from kimi_proxy.core.config.servers import MaskingSettings
from kimi_proxy.core.prune import Options, Origin, Question
from kimi_proxy.features import masking
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.structure.logs import message_of, template
from kimi_proxy.features.sanitizer.lossless import bounded_form
from kimi_proxy.features.sanitizer.plan import result_of
from kimi_proxy.features.sanitizer.shorten import Task, shorten

PRUNE_ID, SEED = "prn_0123456789abcdef", b"seed"
FAILED = (
    "connection to {} refused", "disk {} is full", "payment {} was declined", "token of {} expired", "no route to {}",
    "cannot parse the answer of {}", "{} ran out of memory", "checksum of {} differs", "lock of {} was lost",
)  # fmt: skip
LIMITS = MaskingSettings(max_chars=4000, head_chars=2000, tail_chars=2000)

Place = Callable[[str, str], str]  # from a text and a goal to what is left


def by_ratio(text: str, goal: str) -> str:
    options = Options(0.9, 0, 0, annotate_lines=False, include_markers=True)
    return engine.prune(Question(text, goal, "logs", options), PRUNE_ID).text


def in_chat(text: str, goal: str, **more: bool) -> str:
    task = Task(text, goal, Origin("Bash", command="./run"), True, 300, 200, SEED, is_scored=more.get("scored", True))
    return shorten(task, is_hurried=more.get("hurried", False)).shown


def by_limit(text: str, goal: str) -> str:
    form = bounded_form(result_of(Origin("Bash", command="./run"), text), SEED, 1000, goal=goal)
    return text if form is None else form.shown


def in_gateway(text: str, goal: str) -> str:
    plan = masking.plan(
        {"content": [{"type": "text", "text": text}]}, LIMITS, partial(masking.plan_text, limits=LIMITS, goal=goal)
    )
    left = masking.apply(plan, {cut.text: cut.render("msk_0123456789abcdef") for cut in plan.cuts})
    match left:
        case {"content": [{"text": str(shown)}]}:
            return shown
        case _:
            raise AssertionError(json.encode(left)[:200])


PLACES: Mapping[str, Place] = {
    "ratio": by_ratio,
    "chat": in_chat,
    "chat in a hurry": lambda text, goal: in_chat(text, goal, hurried=True),
    "hook of a long text": lambda text, goal: in_chat(text, goal, scored=False),
    "limit": by_limit,
    "gateway": in_gateway,
}
CUTTING = pytest.mark.parametrize("place", PLACES)


def log(said: list[str], lines: int, seed: int) -> str:
    rng = random.Random(seed)
    at = dict(zip(sorted(rng.sample(range(lines), len(said))), said, strict=True))
    clock = (f"2026-03-01T10:{row // 60 % 60:02}:{row % 60:02}Z" for row in range(lines))
    usual = (f"INFO request {row} of user {row % 97} served in {row % 13} ms" for row in range(lines))
    return "\n".join(f"{time} {at.get(row, line)}" for row, (time, line) in enumerate(zip(clock, usual, strict=True)))


FAILURES = st.lists(st.sampled_from(FAILED), min_size=1, max_size=6, unique=True)


@CUTTING
@often
@given(FAILURES, st.integers(300, 900), st.integers(0, 2**16))
def test_every_distinct_failure_of_a_log_stays(place: str, failures: list[str], lines: int, seed: int):
    text = log([f"ERROR {one.format('billing')}" for one in failures], lines, seed)
    left = PLACES[place](text, "what went wrong?")

    shown = {message_of(line) for line in left.split("\n") if " ERROR " in line and markers.read(line) is None}
    assert len(left) < len(text)
    assert {template(line) for line in shown} == {template(f"ERROR {one.format('billing')}") for one in failures}


@CUTTING
@often
@given(st.from_regex(r"[a-z]{4,8}-[0-9]{3,6}", fullmatch=True), st.integers(300, 900), st.integers(0, 2**16))
def test_what_the_goal_quotes_stays(place: str, name: str, lines: int, seed: int):
    text = log([f"INFO the job {name} was handed to a worker"], lines, seed)
    left = PLACES[place](text, f'Where did "{name}" go?')

    assert len(left) < len(text)
    assert name in left
