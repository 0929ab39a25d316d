"""When tool results are cut: only where it is free or pays, and never what is needed."""

from dataclasses import replace

import pytest

from kimi_proxy.core.prune import Origin
from kimi_proxy.features.sanitizer.policy import (
    HUGE_TOKENS,
    MARKERS_TOKENS,
    POLICIES,
    Aged,
    CachedCut,
    EntryCut,
    edits_by_quoting,
    old_results,
    paying,
    shows_file,
)

OLD = Aged(tokens=1_000, is_unread=False)
WHOLE = EntryCut(HUGE_TOKENS, HUGE_TOKENS - MARKERS_TOKENS)


def test_a_cut_of_cached_results_pays_when_little_stands_behind_it():
    cut = CachedCut(place=50_000, saved=10_000)

    assert paying([cut], 64_000, within_requests=5, read=0.1, write=1.25) == [cut]
    assert paying([cut], 120_000, within_requests=5, read=0.1, write=1.25) == []


def test_a_cut_of_cached_results_pays_later_where_reading_them_costs_less():
    cut = CachedCut(place=50_000, saved=10_000)

    assert paying([cut], 64_000, within_requests=5, read=0.05, write=1.25) == []
    assert paying([cut], 100_000, within_requests=5, read=0.5, write=1.0) == [cut]


def test_an_older_cut_joins_only_if_it_earns_more_than_it_costs():
    far, near = CachedCut(place=1_000, saved=1_000), CachedCut(place=50_000, saved=10_000)

    assert paying([far, near], 64_000, within_requests=5, read=0.1, write=1.25) == [near]


def test_the_newest_results_and_what_is_still_needed_stay():
    results = [
        OLD,
        replace(OLD, tokens=150),
        replace(OLD, failed=True),
        replace(OLD, is_referred=True),
        replace(OLD, is_recovered=True),
        OLD,
        *(OLD for _ in range(3)),
    ]

    assert old_results(results, keep_newest=3, min_tokens=200) == [0, 5]
    assert old_results(results, keep_newest=4, min_tokens=200) == [0]


def test_what_the_model_has_not_read_is_never_old():
    unread = [replace(OLD, is_unread=True)] * 8

    assert old_results(unread, keep_newest=0, min_tokens=200) == []


def test_what_agents_quote_to_edit_enters_whole_unless_it_is_huge():
    default = POLICIES["default"]

    quotes, patches = edits_by_quoting(["Bash", "Edit", "Read"]), edits_by_quoting(["Bash", "apply_patch"])
    assert default.entry_cut(Origin("Read"), quotes) == WHOLE
    assert default.entry_cut(Origin("Read"), patches) == EntryCut(1_000)
    assert default.entry_cut(Origin("Task"), edits_by_quoting([])) == WHOLE
    assert default.entry_cut(Origin("Bash"), quotes) == EntryCut(1_000)
    assert POLICIES["deep"].entry_cut(Origin("Read"), quotes) == EntryCut(1_000)


PRINTS = (
    "cat src/a.py", "cd src && sed -n '1,80p' a.py", "nl -ba a.py | sed -n '1,20p'", "git -C .. diff HEAD~1",
    "git show HEAD:a.py", 'const r = await tools.exec_command({cmd:"sed -n \'1,240p\' src/lib.rs"});',
    "(head -50 a.py)", "cat app.log; sed -n '1,80p' logging.py", "git log -p -n 3 -- src", "gh pr diff 714 --patch",
    "find . -name '*.py'", "rg --files src docs | rg trace", "cd src && git ls-files", "fd -e rs",
)  # fmt: skip
PRINTS_NONE = (
    "cargo test 2>&1 | tail -50", "rg -n timeout src | head", "make cat", "git log --oneline", "ls", "",
    "cat app.log", "tail -n 200 /var/log/app.log.1 | grep -v INFO", "cd out && cat 'build.out'",
)  # fmt: skip


@pytest.mark.parametrize("command", PRINTS)
def test_a_file_that_a_command_prints_enters_whole_where_patches_will_quote_it(command: str):
    shown = Origin("exec_command", command=command)

    assert POLICIES["default"].entry_cut(shown, edits_by_quoting=False) == WHOLE
    assert POLICIES["default"].entry_cut(shown, edits_by_quoting=True) == EntryCut(1_000)
    assert POLICIES["deep"].entry_cut(shown, edits_by_quoting=False) == EntryCut(1_000)
    assert shows_file(shown)


@pytest.mark.parametrize("command", PRINTS_NONE)
def test_what_a_command_filters_or_finds_or_a_log_is_no_file_to_edit(command: str):
    printed = Origin("exec_command", command=command)

    assert POLICIES["default"].entry_cut(printed, edits_by_quoting=False) == EntryCut(1_000)
    assert not shows_file(printed)


def test_a_file_that_is_likely_to_be_used_enters_whole_up_to_24_000_tokens():
    for policy in (POLICIES["careful"], POLICIES["default"]):
        cut = policy.entry_cut(Origin("Read"), edits_by_quoting=True, likely=0.3)
        assert (cut.over_tokens, cut.most_tokens) == (24_000, 24_000)
        assert policy.entry_cut(Origin("Read"), edits_by_quoting=True, likely=0.29) == EntryCut(1_000)
        assert policy.entry_cut(Origin("Task"), edits_by_quoting=True, likely=0.9) == WHOLE
    assert POLICIES["deep"].entry_cut(Origin("Read"), edits_by_quoting=True, likely=0.9) == EntryCut(1_000)


def test_a_cut_of_cached_results_has_longer_to_pay_where_an_agent_edits_with_patches():
    default = POLICIES["default"]

    assert default.warm_cut(has_tools=True, edits_by_quoting=True).within_requests == 20
    assert default.warm_cut(has_tools=True, edits_by_quoting=False).within_requests == 80
    assert default.warm_cut(has_tools=False, edits_by_quoting=False).within_requests == 20
    assert POLICIES["careful"].warm_cut(has_tools=True, edits_by_quoting=False).within_requests == 0


def test_files_stay_at_a_new_turn_for_they_are_quoted_later():
    results = [replace(OLD, shows_file=True), OLD, OLD]

    assert old_results(results, keep_newest=1, min_tokens=200, spares_files=True) == [1]
    assert old_results(results, keep_newest=1, min_tokens=200) == [0, 1]
    assert POLICIES["default"].warm_cut(has_tools=True).spares_files
    assert POLICIES["default"].warm_cut(has_tools=False).spares_files
    assert not POLICIES["deep"].warm_cut(has_tools=True).spares_files
