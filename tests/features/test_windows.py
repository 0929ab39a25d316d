"""Levels rise once each, fall in silence, and are not fooled by a change of who counts."""

from dataclasses import replace

from kimi_proxy.features.metering import MAX_SESSIONS, Metric, WindowLevels


def a_metric(percent: float, session: str = "ses_a", counted: bool = True) -> Metric:
    tokens = round(percent * 10)
    bare = Metric("req", session, 0.0, "p", "m", "chat", tokens, 0, (), 1000)
    return replace(bare, input_tokens=tokens) if counted else bare


def test_a_level_is_told_when_it_is_reached_and_not_again():
    windows = WindowLevels()

    assert [windows.rise(a_metric(share)) for share in (10, 80, 85, 89, 90, 99, 94, 50, 81)] == [
        *(None, "caution", None, None, "warning", "critical", None, None, "caution")
    ]


def test_an_estimate_may_raise_a_level_and_never_lowers_one_that_was_counted():
    windows = WindowLevels()
    windows.rise(a_metric(85))

    assert windows.rise(a_metric(10, counted=False)) is None
    assert windows.rise(a_metric(85)) is None
    assert windows.rise(a_metric(91, counted=False)) == "warning"


def test_sessions_have_a_level_each():
    windows = WindowLevels()

    assert [windows.rise(a_metric(96, session)) for session in ("ses_a", "ses_b", "ses_a")] == [
        *("critical", "critical", None)
    ]


def test_those_who_talked_long_ago_are_forgotten_first():
    windows = WindowLevels()
    windows.meet(("local", f"ses_{n}") for n in range(MAX_SESSIONS))
    windows.rise(a_metric(1, "ses_0"))
    windows.meet([("local", "ses_new")])

    assert [("local", f"ses_{which}") in windows for which in (0, 1, "new")] == [True, False, True]


def test_a_session_can_be_forgotten_and_so_can_all_of_a_person():
    windows = WindowLevels()
    windows.meet([("local", "ses_a"), ("local", "ses_b"), ("person/ada", "ses_a")])
    windows.forget("local", "ses_a")
    assert [("local", "ses_a") in windows, ("local", "ses_b") in windows] == [False, True]
    windows.forget("local", None)
    assert [("local", "ses_b") in windows, ("person/ada", "ses_a") in windows] == [False, True]


def test_instructions_that_are_buried_are_told_of_once_until_they_come_up_again():
    windows = WindowLevels()
    told = [windows.sinks(a_metric(1, "s"), is_sunk) for is_sunk in (False, True, True, False, True)]
    windows.forget("local", "s")

    assert told == [False, True, False, False, True]
    assert windows.sinks(a_metric(1, "s"), True)
