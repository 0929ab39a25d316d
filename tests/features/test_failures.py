import pytest

from kimi_proxy.features.failures import MARKS, WARNING_LEVEL, failure_level
from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.signals import log_signals


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
def test_a_word_of_failure_has_the_highest_level(line: str) -> None:
    assert failure_level(line) == 1.0


@pytest.mark.parametrize(
    "line", ["0 errors", "Failures: 0", "see error_log=/var/log/x", "gcc -Werror main.c", "all good"]
)
def test_a_word_of_failure_in_a_harmless_line_does_not_count(line: str) -> None:
    assert failure_level(line) < 1.0


@pytest.mark.parametrize(
    "line", ["warning: unused variable", "permission denied", "make returned 2", "connection timed out"]
)
def test_a_word_of_warning_has_a_lower_level(line: str) -> None:
    assert failure_level(line) == WARNING_LEVEL


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
    signals = log_signals(lines, found, lambda: None)

    assert [signals["is_traceback"][row] for row in range(6)] == [0, 0, 1, 1, 1, 0]
    for kind in MARKS:
        assert [why == kind for why in found.protected] == [bool(mark) for mark in signals[f"is_{kind}"]]
