from evaluation import cases
from evaluation.cases import Commit

TEXT = "\n".join(f"line {i}" if i % 10 else "" for i in range(100))


def commit(*paths: str, message: str = "Retry when the socket closes early") -> Commit:
    return Commit("0123456789abcdef", message, paths)


def test_programs_come_before_their_tests_and_pages_last():
    found = cases.candidates(commit("docs/a.md", "tests/test_a.py", "src/a.py", "logo.png"))

    assert found == ["src/a.py", "tests/test_a.py", "docs/a.md"]


def test_a_sweep_over_many_files_and_a_message_without_words_make_no_case():
    assert cases.candidates(commit(*(f"{i}.py" for i in range(6)))) == []
    assert cases.candidates(commit("a.py", message="wip")) == []


def test_what_others_wrote_and_what_tells_the_past_is_left_out():
    for path in ("vendor/a.go", "CHANGELOG.md", "a.min.js", "x_pb2.py", "photo.jpg"):
        assert cases.kind_of(path) is None


def test_gold_are_changed_lines_and_the_two_around_an_insertion():
    diff = "@@ -3,2 +3 @@\n-a\n-b\n+c\n@@ -20,0 +20,3 @@ def x\n+1\n+2\n+3\n@@ -50 +52 @@\n"

    assert cases.changed_rows(diff, TEXT.split("\n")) == (2, 3, 19, 49)  # row 20 is blank


def test_a_commit_makes_a_case_of_the_file_as_it_was():
    case = cases.case_of(commit("src/a.py"), "src/a.py", TEXT, "@@ -3 +3 @@\n")

    assert case is not None
    assert (case.kind, case.source_type, case.gold, case.text) == ("commit", "code", (2,), TEXT)


def test_a_change_of_many_lines_is_no_answer():
    diff = "@@ -3 +3,90 @@\n" + "+x\n" * 90

    assert cases.case_of(commit("src/a.py"), "src/a.py", TEXT, diff) is None


def test_a_change_of_most_of_a_file_is_no_answer():
    assert cases.case_of(commit("src/a.py"), "src/a.py", TEXT, "@@ -1,90 +1,90 @@\n") is None
