import pytest

from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.signals import MARKED, WORRY, alarm_of, measure_trouble


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: could not open",
        "java.lang.NullPointerException: x",
        "FAILED tests/test_a.py::test_b",
        "thread 'main' panicked at src/main.rs:3",
        "npm ERR! code 1",
        "  ✖ 3 problems",
    ],
)
def test_words_of_failure_raise_the_alarm(line: str) -> None:
    assert alarm_of(line) == 1.0


@pytest.mark.parametrize(
    "line", ["0 errors", "Failures: 0", "see error_log=/var/log/x", "gcc -Werror main.c", "all good"]
)
def test_a_word_of_failure_in_a_calm_line_raises_none(line: str) -> None:
    assert alarm_of(line) < 1.0


@pytest.mark.parametrize(
    "line", ["warning: unused variable", "permission denied", "make returned 2", "connection timed out"]
)
def test_words_of_worry_raise_a_smaller_alarm(line: str) -> None:
    assert alarm_of(line) == WORRY


def test_what_the_outline_marks_is_a_signal_of_its_own() -> None:
    lines = [
        "collecting",
        "all is well",
        "Traceback (most recent call last):",
        '  File "a.py", line 1',
        "KeyError: 'x'",
        "end",
    ]
    found = outline(lines, "logs")
    signals = measure_trouble(lines, found, lambda: None)

    assert [signals["is_traceback"][row] for row in range(6)] == [0, 0, 1, 1, 1, 0]
    for kind in MARKED:
        assert [why == kind for why in found.protected] == [bool(mark) for mark in signals[f"is_{kind}"]]
