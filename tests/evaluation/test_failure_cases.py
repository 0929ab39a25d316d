import pytest

from evaluation import cases

NOISE = [f"collecting item {i}" for i in range(120)]
REPORTS = {
    "pytest": (
        ["_____ test_login _____", "", "    def test_login():", ">       assert 1 == 2", "E       assert 1 == 2", ""],
        "why does test_login fail?",
    ),
    "unittest": (
        ["FAIL: test_login (tests.Auth)", "-----", "Traceback (most recent call last):", "AssertionError: 1 != 2"],
        "why does test_login fail?",
    ),
    "go": (["--- FAIL: TestLogin (0.00s)", "    auth_test.go:12: got 1, want 2"], "why does TestLogin fail?"),
    "cargo": (
        ["---- auth::login stdout ----", "thread 'auth::login' panicked at src/auth.rs:12:", "left: 1"],
        "why does auth::login fail?",
    ),
    "jest": (["  ● auth › logs in", "", "    expect(received).toBe(expected)"], "why does auth › logs in fail?"),
    "mocha": (["  1) auth logs in:", "     AssertionError: 1 == 2"], "why does auth logs in: fail?"),
    "rustc": (
        ["error[E0308]: mismatched types", "  --> src/auth.rs:12:9"],
        "what is wrong: mismatched types?",
    ),
    "gcc": (["src/auth.c:12:5: error: expected ';'", "   12 |   int x"], "why does src/auth.c not compile?"),
}


ENDS = {
    "pytest": "===== 1 failed =====",
    "unittest": "======================",
    "go": "FAIL",
    "cargo": "failures:",
    "jest": "Tests: 1 failed",
    "mocha": "npm ended",
    "rustc": "",
    "gcc": "make: *** [all] Error 1",
}


@pytest.mark.parametrize("runner", REPORTS)
def test_a_failure_asks_by_its_name_and_its_report_answers(runner: str):
    report, goal = REPORTS[runner]
    log = "\n".join([*NOISE, *report, ENDS[runner], *NOISE])

    (case,) = cases.failure_cases("make test", log)

    assert (case.goal, case.kind, case.source_type) == (goal, "failure", "logs")
    assert [log.split("\n")[row] for row in case.gold] == [line for line in report if line.strip()]


def test_each_of_several_failures_is_asked_for_once():
    twice = [*REPORTS["go"][0], "FAIL"] * 2
    log = "\n".join([*NOISE, *REPORTS["pytest"][0], ENDS["pytest"], *twice, *NOISE])

    assert [case.goal for case in cases.failure_cases("make", log)] == [
        "why does test_login fail?",
        "why does TestLogin fail?",
    ]


def test_a_log_that_names_no_failure_makes_no_case():
    assert list(cases.failure_cases("make", "\n".join(NOISE))) == []
