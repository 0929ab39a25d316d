import tracemalloc

from kimi_proxy.features.pruning.goal import Goal, fold, goal_is_english, parts, read_goal, stem


def test_an_identifier_stands_for_itself_and_for_its_parts() -> None:
    assert parts("parseYamlFile") == ("parseyamlfile", "parse", "yaml", "file")
    assert parts("max_prune_ratio") == ("max_prune_ratio", "max", "prune", "ratio")
    assert parts("HTTPServer") == ("httpserver", "http", "server")


def test_a_single_word_stands_for_its_stem() -> None:
    assert parts("sessions") == ("session",)
    assert stem("retries") == "retry"
    assert stem("class") == "class"


def test_accents_and_case_make_no_difference() -> None:
    assert fold("Échec") == fold("echec") == "echec"


def test_small_words_of_both_languages_say_nothing() -> None:
    assert read_goal("where is the timeout of a session?").stems == {"timeout": 1.0, "session": 1.0}
    assert set(read_goal("où est la classe Session").stems) >= {"session", "class"}


def test_a_french_goal_also_asks_in_the_words_that_code_uses() -> None:
    goal = read_goal("pourquoi la connexion au serveur échoue")

    assert {"connection", "server", "fail"} <= set(goal.stems)


def test_an_english_goal_is_left_in_english() -> None:
    assert goal_is_english("copy the file")
    assert "queue" not in read_goal("copy the file").stems  # `file` is a queue in French


def test_identifiers_paths_and_quoted_strings_are_wanted_exactly() -> None:
    goal = read_goal('why does `get_user()` in src/app/users.py say "no such user"?')

    assert {"get_user()", "get_user", "src/app/users.py", "no such user"} <= set(goal.exact)


def test_a_goal_of_nothing_asks_for_nothing() -> None:
    assert read_goal("") == read_goal("?? !!") == Goal({}, ())


def test_the_words_of_a_path_do_not_count_as_words() -> None:
    goal = read_goal("fix the retry in src/app/users.py, /etc/hosts, ./run.sh:12 and flask/testsuite/basic.py")

    assert set(goal.stems) == {"fix", "retry", "12"}
    assert {"src/app/users.py", "flask/testsuite/basic.py"} <= set(goal.exact)


def test_what_only_looks_like_a_path_counts_as_words() -> None:
    goal = read_goal("read/write of `app.cache` and TCP/IP with session.close()")

    assert {"read", "write", "app", "cache", "tcp", "ip", "session", "close"} <= set(goal.stems)


def test_of_long_goals_and_words_only_their_beginnings_are_remembered() -> None:
    read_goal("warm up")
    tracemalloc.start()
    try:
        for nth in range(24):
            read_goal(f"{nth} {'why does it fail ' * 60_000}")
            parts(f"w{nth}{'a' * 1_000_000}")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept < 1_000_000
