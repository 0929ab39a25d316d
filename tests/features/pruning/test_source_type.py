"""What kind of text a file holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.prune import SOURCE_TYPES, SourceType
from kimi_proxy.features.pruning.source_type import guess

CODE = "def area(r):\n    return 3.14 * r * r\n\nclass Shape {\n  int sides;\n};\n"
LOG = "2026-01-02 10:00:00 INFO ready\n[10:00:01] GET /health 200\nERROR: cannot open the file\n"
PROSE = "# Title\n\nThis is a page of text that somebody wrote to be read.\n- a point\n- another one\n"


@pytest.mark.parametrize(
    ("name", "kind"), [("a.py", "code"), ("A.RS", "code"), ("x/build.log", "logs"), ("README.md", "docs")]
)
def test_a_telling_name_decides_whatever_the_text(name: str, kind: SourceType):
    assert [guess(name, text) for text in ("", CODE, LOG, PROSE)] == [kind] * 4


@pytest.mark.parametrize("name", ["-", "notes", "output.txt", "weird.x9"])
@pytest.mark.parametrize(("text", "kind"), [(CODE, "code"), (LOG, "logs"), (PROSE, "docs")])
def test_without_one_the_lines_decide(name: str, text: str, kind: SourceType):
    assert guess(name, text) == kind


@given(st.text(), st.text())
def test_anything_gets_a_kind_and_always_the_same(name: str, text: str):
    assert guess(name, text) == guess(name, text)
    assert guess(name, text) in SOURCE_TYPES


def test_a_long_line_takes_no_time():
    assert guess("-", "a " * 5_000_000) in SOURCE_TYPES


def test_lines_from_all_over_a_long_text_decide():
    prose = "The pump was looked at and works as it should, says the report of the day"
    log = "2026-01-01 12:00:00 INFO the pump works"

    assert guess("", "\n".join([prose] * 60 + [log] * 600)) == "logs"
    assert guess("", "\n".join([log] * 60 + [prose] * 600)) == "docs"
    assert guess("", "\n".join([log, "", ""] * 400)) == "logs"


CARGO = [
    *(f"   Compiling amber-{n} v0.{n}.1" for n in range(200)),
    *("warning: unused variable: `x`", "  --> src/a.rs:3:9", "   |", "3  |     let x = 3;", "   |         ^"),
    *("error[E0502]: cannot borrow `a` as mutable", "  --> src/b.rs:8:1"),
]
JEST = [*(f"PASS src/part{n}.test.ts" for n in range(100)), "FAIL src/total.test.ts", "    Expected: 119"]
LISTING = [f"-rw-r--r-- 1 dev dev {n} Mar  3 10:00 part_{n}.py" for n in range(100)]
ZONE = [f"host-{n}.example.  3600 IN A 192.0.2.{n}" for n in range(100)]


@pytest.mark.parametrize("lines", [CARGO, JEST, LISTING, ZONE])
def test_what_a_command_printed_is_no_code(lines: list[str]):
    assert guess("-", "\n".join(lines) + "\n") == "logs"


@pytest.mark.parametrize(
    "lines", [[f"key_{n} = {n}" for n in range(50)], [f"<li>item {n}</li>" for n in range(50)], ["word"]]
)
def test_settings_markup_and_a_word_are_not_taken_for_what_a_command_printed(lines: list[str]):
    assert guess("-", "\n".join(lines) + "\n") == "code"
