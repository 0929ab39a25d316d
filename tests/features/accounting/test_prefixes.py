"""A provider has to read anew whenever we change what it may have cached."""

from kimi_proxy.features.accounting import MAX_SESSIONS, PrefixTracker


def test_of_a_session_that_nobody_knows_nobody_can_tell():
    assert not PrefixTracker().changes("a", "cmp_1")


def test_a_change_is_told_once_and_so_is_the_way_back():
    prefixes = PrefixTracker()

    told = [prefixes.changes("a", prefix) for prefix in ("", "cmp_1", "cmp_1", "cmp_2", "", "")]

    assert told == [False, True, False, True, True, False]
    assert not prefixes.changes("b", "")


def test_no_number_of_sessions_fills_the_memory():
    prefixes = PrefixTracker()
    for n in range(MAX_SESSIONS + 1):
        prefixes.changes(f"s{n}", "x")

    assert not prefixes.changes("s0", "y")
    assert prefixes.changes(f"s{MAX_SESSIONS}", "y")
