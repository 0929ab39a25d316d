"""A count in a log is about a conversation only where that can be told."""

from dataclasses import replace

from kimi_proxy.addons.log_watcher.log_watcher import CountMatcher
from kimi_proxy.features.chat.sessions import LOCAL_IDS
from kimi_proxy.features.metering import LogCount, Metric

COUNT = LogCount("continue", 5_000, 32_768)
METRIC = Metric("req_1", "a", 100.0, "p", "m", "chat", 10, 0, (), None, duration_ms=2_000)


def test_a_log_that_names_nobody_means_the_only_one_that_talks():
    belonging = CountMatcher()
    belonging.on_request("a", 100.0)

    assert belonging.take(COUNT, 101.0) == "a"


def test_of_two_that_talk_it_means_neither():
    belonging = CountMatcher()
    belonging.on_request("a", 100.0)
    belonging.on_request("b", 100.5)

    assert belonging.take(COUNT, 101.0) is None


def test_who_has_not_talked_for_long_is_not_meant():
    belonging = CountMatcher()
    belonging.on_request("a", 100.0)
    belonging.on_request("b", 140.0)

    assert belonging.take(COUNT, 141.0) == "b"


def test_a_named_conversation_is_the_one_whose_requests_bear_the_name():
    belonging = CountMatcher()
    belonging.on_request("a", 100.0, "7e2c")
    belonging.on_request("b", 100.0)

    assert belonging.take(replace(COUNT, conversation="7e2c"), 101.0) == "a"
    assert belonging.take(replace(COUNT, conversation="other"), 101.0) is None


def test_a_session_that_its_client_named_is_known_by_that_name_too():
    belonging = CountMatcher()
    belonging.on_request(LOCAL_IDS.session_named("7e2c").id, 100.0)
    belonging.on_request("b", 100.0)

    assert belonging.take(replace(COUNT, conversation="7e2c"), 101.0) == LOCAL_IDS.session_named("7e2c").id


def test_a_count_is_worth_more_than_ours_for_five_seconds():
    belonging = CountMatcher()
    belonging.on_request("a", 100.0)
    belonging.take(COUNT, 103.0)

    assert belonging.newer(METRIC, "a", 108.0) is COUNT
    assert belonging.newer(METRIC, "a", 108.1) is None
    assert belonging.newer(None, "a", 104.0) is COUNT
    assert belonging.newer(None, "b", 104.0) is None


def test_a_clock_that_was_set_back_makes_nothing_fresh():
    belonging = CountMatcher()
    belonging.on_request("a", 100.0)
    belonging.take(COUNT, 103.0)

    assert belonging.newer(METRIC, "a", 90.0) is None


def test_a_request_that_ended_after_the_count_is_the_newer_word():
    belonging = CountMatcher()
    belonging.on_request("a", 100.0)
    belonging.take(COUNT, 101.0)

    assert belonging.newer(METRIC, "a", 102.5) is None


def test_no_number_of_sessions_fills_the_memory():
    belonging = CountMatcher()
    for n in range(3_000):
        belonging.on_request(f"s{n}", 100.0, f"n{n}")
        belonging.take(replace(COUNT, conversation=f"n{n}"), 100.0)

    assert belonging.newer(None, "s0", 100.0) is None
    assert belonging.newer(None, "s2999", 100.0) is not None
