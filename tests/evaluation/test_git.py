from pathlib import Path

import pytest
from tests.support import histories

from evaluation.cases import Commit
from evaluation.mining import Repository
from kimi_proxy.core.errors import ToolFailed


def test_history_tells_what_each_commit_modified_newest_first(tmp_path: Path):
    folder = histories.begin(tmp_path / "project")
    histories.commit(folder, "Begin", {"a.py": "1\n", "b.py": "1\n"})
    second = histories.commit(folder, "Change both\n\nBecause.", {"a.py": "2\n", "b.py": "2\n", "c.py": "new\n"})

    repository = Repository(folder)

    assert (repository.name, repository.head) == ("project", second)
    assert next(repository.history(10)) == Commit(second, "Change both\n\nBecause.\n", ("a.py", "b.py"))


def test_files_are_read_before_a_commit_and_now(tmp_path: Path):
    folder = histories.begin(tmp_path)
    histories.commit(folder, "Begin", {"été/a.py": "1\n2\n"})
    second = histories.commit(folder, "Change", {"été/a.py": "1\n3\n"})
    repository = Repository(folder)

    assert repository.before(second, "été/a.py") == "1\n2\n"
    assert repository.now("été/a.py") == "1\n3\n"
    assert repository.files() == ["été/a.py"]
    assert "@@ -2 +2 @@" in repository.diff(second, "été/a.py")


def test_what_is_missing_or_not_text_is_none(tmp_path: Path):
    folder = histories.begin(tmp_path)
    (folder / "a.bin").write_bytes(b"\x00\x01")
    (folder / "b.txt").write_bytes(b"\xff\xfe")
    first = histories.commit(folder, "Begin", {"large.txt": "x" * 2_000_000})
    repository = Repository(folder)

    assert [repository.now(name) for name in ("a.bin", "b.txt", "large.txt", "absent")] == [None] * 4
    assert repository.before(first, "a.bin") is None
    assert repository.diff(first, "a.bin") == ""


def test_a_bare_repository_and_a_folder_inside_are_fine(tmp_path: Path):
    folder = histories.begin(tmp_path / "project")
    histories.commit(folder, "Begin", {"src/a.py": "1\n"})
    histories.git(tmp_path, "clone", "-q", "--bare", "project", "other.git")

    assert Repository(tmp_path / "other.git").name == "other"
    assert Repository(folder / "src").name == "project"


def test_a_folder_without_a_repository_or_without_a_commit_is_refused(tmp_path: Path):
    with pytest.raises(ToolFailed, match="not a git repository"):
        Repository(tmp_path)
    with pytest.raises(ToolFailed, match="there is no commit yet"):
        Repository(histories.begin(tmp_path / "empty"))
    with pytest.raises(ToolFailed):
        Repository(tmp_path / "absent")


def test_nothing_that_the_repository_configures_is_run(tmp_path: Path):
    folder = histories.begin(tmp_path / "project")
    histories.commit(folder, "Begin", {"a.py": "1\n", ".gitattributes": "*.py diff=evil\n"})
    second = histories.commit(folder, "Change", {"a.py": "2\n"})
    ran = tmp_path / "ran"
    for name in ("diff.external", "diff.evil.textconv", "diff.evil.command", "core.fsmonitor", "core.pager"):
        histories.git(folder, "config", name, f"touch {ran}")
    repository = Repository(folder)

    assert "+2" in repository.diff(second, "a.py")
    assert [commit.paths for commit in repository.history(5)] == [("a.py",)]
    assert not ran.exists()
