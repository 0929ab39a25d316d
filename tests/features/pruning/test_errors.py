"""Errors and failures of a log stay at every ratio, in chats too, and a gap that holds one says how many."""

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import often, too

from kimi_proxy.core import markers
from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import CallContext, Options, Origin, Pruned, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.structure.logs import message_of, template
from kimi_proxy.features.sanitizer.shorten import Task, shorten

PRUNE_ID = "prn_0123456789abcdef"
RATIOS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
ERRORS = 31
DISTINCT = (
    "connection to {} refused", "disk {} is full", "payment {} was declined", "token of {} expired", "no route to {}",
    "cannot parse the answer of {}", "{} ran out of memory", "checksum of {} differs", "lock of {} was lost",
)  # fmt: skip
PLACES = ("orders", "users", "billing", "search", "mail", "reports", "images")


def log(errors: Sequence[str], lines: int = 3000, seed: int = 1) -> str:
    """Return a log of a service with these errors spread over it."""
    rng = random.Random(seed)
    at = sorted(rng.sample(range(lines), len(errors)))
    said = dict(zip(at, errors, strict=True))
    out = []
    for row in range(lines):
        clock = f"2026-03-01T10:{row // 60 % 60:02}:{row % 60:02}.{row % 1000:03}Z"
        routine = f"INFO request {row} of user {row % 97} served in {row % 13} ms"
        out.append(f"{clock} {'ERROR ' + said[row] if row in said else routine}")
    return "\n".join(out) + "\n"


def different(count: int) -> list[str]:
    return [DISTINCT[at % len(DISTINCT)].format(PLACES[at // len(DISTINCT) % len(PLACES)]) for at in range(count)]


def pruned_at(text: str, ratio: float, goal: str = "what went wrong?") -> Pruned:
    options = Options(ratio, 0, 0, annotate_lines=False, include_markers=True)
    return engine.prune(Question(text, goal, "logs", options), PRUNE_ID)


def errors_of(text: str) -> list[str]:
    return [line for line in split(text) if " ERROR " in line and markers.read(line) is None]


def counted_in_gaps(pruned: Pruned) -> int:
    counts = (re.match(r"dont (\d+) erreurs?, ", annotation.cut.reason) for annotation in pruned.annotations)
    return sum(int(count[1]) for count in counts if count)


@pytest.mark.parametrize("ratio", RATIOS)
def test_every_error_of_a_long_log_stays_where_they_differ(ratio: float) -> None:
    text = log(different(ERRORS))
    pruned = pruned_at(text, ratio)
    assert pruned.annotations
    if ratio <= 0.95:
        assert errors_of(pruned.text) == errors_of(text)
    kinds = {template(line) for line in errors_of(text)}
    assert {template(line) for line in errors_of(pruned.text)} == kinds
    assert counted_in_gaps(pruned) == len(errors_of(text)) - len(errors_of(pruned.text))


@pytest.mark.parametrize("ratio", RATIOS)
def test_an_error_that_repeats_stays_once_and_gaps_count_the_others(ratio: float) -> None:
    text = log(["upstream 17 timed out", *["cannot reach the broker"] * (ERRORS - 1)])
    pruned = pruned_at(text, ratio)
    assert {message_of(line) for line in errors_of(pruned.text)} == {message_of(line) for line in errors_of(text)}
    assert counted_in_gaps(pruned) == len(errors_of(text)) - len(errors_of(pruned.text))


def test_repeated_errors_stay_while_routine_lines_do() -> None:
    text = log(["cannot reach the broker"] * ERRORS)
    assert len(errors_of(pruned_at(text, 0.9).text)) == ERRORS


@pytest.mark.parametrize("ratio", [0.5, *(too(ratio) for ratio in (0.3, 0.8, 0.95))])
def test_a_log_full_of_errors_keeps_one_of_each_kind(ratio: float) -> None:
    text = log([f"job {at} {DISTINCT[at % len(DISTINCT)].format('node')}" for at in range(600)], lines=1000)
    pruned = pruned_at(text, ratio)
    assert {template(line) for line in errors_of(pruned.text)} == {template(line) for line in errors_of(text)}
    assert counted_in_gaps(pruned) == len(errors_of(text)) - len(errors_of(pruned.text))


def test_what_only_names_an_error_is_not_counted() -> None:
    text = log([]).replace("served", "served with 0 errors")
    pruned = pruned_at(text, 0.9)
    assert pruned.annotations
    assert counted_in_gaps(pruned) == 0


MESSAGES = st.sampled_from([*different(20), "Traceback (most recent call last):", "FAILED tests/test_a.py::test_b"])


@often
@given(st.lists(MESSAGES, min_size=1, max_size=60), st.integers(60, 400), st.floats(0, 1), st.text(max_size=30))
def test_each_error_stays_or_one_of_its_kind_and_its_gap_says_so(
    errors: list[str], lines: int, ratio: float, goal: str
) -> None:
    text = log(errors, lines)
    pruned = pruned_at(text, ratio, goal)
    room = (1 - ratio) * (lines + 1)
    shown, all_errors = errors_of(pruned.text), errors_of(text)
    messages = {message_of(line) for line in all_errors}
    if len(messages) <= room:
        assert {message_of(line) for line in shown} == messages
    assert {template(line) for line in shown} == {template(line) for line in all_errors}
    assert counted_in_gaps(pruned) == len(all_errors) - len(shown)


CALL = CallContext("Bash", "", "what went wrong?", "I look at the log.", '{"command":"cat app.log"}')


@often
@given(st.lists(MESSAGES, min_size=1, max_size=60), st.integers(200, 1200), st.booleans(), st.booleans())
def test_in_a_chat_each_error_stays_or_one_of_its_kind_too(
    errors: list[str], lines: int, is_unread: bool, is_hurried: bool
) -> None:
    text = log(errors, lines)
    origin = Origin("Bash", command="cat app.log")
    task = Task(text, "what went wrong?", origin, is_unread, 500, 200, b"seed", context=CALL)
    shortened = shorten(task, is_hurried=is_hurried)
    shown, all_errors = errors_of(shortened.shown), errors_of(text)
    reasons = (re.match(r"dont (\d+) erreurs?, ", cut.reason) for hidden in shortened.hidden for cut in hidden.cuts)
    assert {template(line) for line in shown} == {template(line) for line in all_errors}
    assert sum(int(count[1]) for count in reasons if count) == len(all_errors) - len(shown)


@pytest.mark.parametrize("ratio", [0.5, 0.7, 0.9])
def test_requests_that_a_web_server_could_not_answer_are_errors(ratio: float):
    lines = [f'10.0.0.{n % 250} - - [x] "GET /page/{n} HTTP/1.1" 200 {n} "-" "-"' for n in range(900)]
    lines[333] = '10.0.0.7 - - [x] "POST /export HTTP/1.1" 502 157 "-" "-"'
    lines[666] = '10.0.0.7 - - [x] "GET /checkout HTTP/2.0" 500 99 "-" "-"'
    left = pruned_at("\n".join(lines), ratio, "Which requests did the server not manage to answer?").text

    assert lines[333] in left
    assert lines[666] in left
