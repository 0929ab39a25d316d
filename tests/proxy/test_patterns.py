import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.proxy.search import Place, Query, ripgrep, search, to_extended

LINES = [
    "port = 8000", "port = 80", "PORT=8443", "def open_session(self):", "class Session:", "a-b_c.d", "x]y", "tab\there",
    "", "   indented", "foo(bar)", "été 2026", "1.2.3", "{braces}", "a+b", "caret ^ here", "back\\slash", "aaa", "abab",
]  # fmt: skip
PATTERNS = [
    r"8\d{3}", r"\bport\b", r"(?i)port", r"\w+\(\w+\)", r"(?:open|close)_\w+", r"^\s+\S", r"[\w.-]+\.\w", r"a+?b",
    r"[\d.]{3,}",
    r"\D$", r"foo\(", r"[^\s\w]", r"x\]y", r"[\]\\]", r"\tht?ere?|\there", r"(?P<n>ab)+$", r"\{\w+\}", r"[\^+]",
    r"a\+b", r"^$",
    r"class\s+[A-Z]\w*", r"\.", r"\/|\-b", r"\Bpen",
]  # fmt: skip
REFUSED = [r"(a)\1", r"(?=x)y", r"\p{L}", r"\x41", r"[a-z&&[^b]]", r"\Astart", r"[\D]", r"(?s).", r"\u{41}", r"\z"]


def found(folder: Path, rg: str | None, pattern: str) -> list[int]:
    hits = search(Query((pattern,), None, 0, 1000), Place(folder), os.environ, 60, threading.Event(), rg)
    return [hit.line for hit in hits.hits]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("\n".join(LINES) + "\n", "utf-8")
    return tmp_path


@pytest.mark.skipif(ripgrep() is None or shutil.which("grep") is None, reason="compares both programs")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_finds_the_same_lines_with_and_without_ripgrep(folder: Path, pattern: str) -> None:
    assert found(folder, None, pattern) == found(folder, ripgrep(), pattern) != []


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_grep_cannot_say_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ToolFailed, match="needs ripgrep"):
        to_extended(pattern)


@pytest.mark.parametrize("rg", [None, ripgrep()])
@pytest.mark.parametrize("is_repository", [False, True])
def test_a_link_that_leads_to_itself_is_no_error(folder: Path, rg: str | None, is_repository: bool) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "up").symlink_to(folder, target_is_directory=True)
    if is_repository:
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    got = search(Query((r"8\d{3}",), None, 0, 1000), Place(folder), os.environ, 60, threading.Event(), rg)

    assert [(hit.path, hit.line) for hit in got.hits] == [(got.hits[0].path, 1), (got.hits[0].path, 3)]
    assert got.outcome.errors.strip() == ""
