"""Files of the user are changed reversibly, or not at all."""

import json
import os
import stat
from pathlib import Path

import pytest
from tests.support.permissions import bound_by_modes

from kimi_proxy.connect.client_files import SharedFile
from kimi_proxy.connect.init import EditLog, FileChange, RulesEdit, ServerEdit, apply, plan_edit, plan_undo
from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.editing import jsonc

FORM = SharedFile(jsonc, "mcpServers", "pruner")
ENTRY: JsonObject = {"type": "stdio", "command": "kimi-proxy", "args": ["tools", "--stdio"]}
THEIRS = '{\n    // mine\n    "mcpServers": {"other": {"url": "x"}},\n    "theme": "dark"\n}'


@pytest.fixture
def log(tmp_path: Path) -> EditLog:
    return EditLog(tmp_path / "state")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config.json"
    file.write_text(THEIRS)
    return file


def connect(file: Path, log: EditLog, entry: JsonObject = ENTRY) -> FileChange:
    change = plan_edit(ServerEdit(file, FORM, entry), log)
    apply(change, log)
    return change


def disconnect(file: Path, log: EditLog) -> FileChange:
    change = plan_undo(ServerEdit(file, FORM, {}), log)
    assert change is not None
    apply(change, log)
    return change


def test_a_change_and_its_undoing_leave_the_same_bytes(file: Path, log: EditLog):
    connect(file, log)
    assert FORM.entry(file.read_text()) == ENTRY
    disconnect(file, log)

    assert file.read_text() == THEIRS
    assert plan_undo(ServerEdit(file, FORM, {}), log) is None


def test_a_change_that_is_made_twice_is_made_once(file: Path, log: EditLog):
    connect(file, log)
    once, when = file.read_bytes(), file.stat().st_mtime_ns
    again = connect(file, log)

    assert not again.is_needed
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (once, when)
    disconnect(file, log)
    assert file.read_text() == THEIRS


def test_two_different_changes_are_undone_together(file: Path, log: EditLog):
    connect(file, log)
    connect(file, log, {"type": "http", "url": "http://127.0.0.1:8006/mcp"})
    disconnect(file, log)

    assert file.read_text() == THEIRS


def test_what_others_changed_since_stays(file: Path, log: EditLog):
    connect(file, log)
    file.write_text(file.read_text().replace('"dark"', '"light"'))
    disconnect(file, log)

    assert file.read_text() == THEIRS.replace('"dark"', '"light"')


def test_what_others_changed_between_two_changes_stays(file: Path, log: EditLog):
    connect(file, log)
    file.write_text(file.read_text().replace('"dark"', '"light"'))
    connect(file, log, {"type": "http", "url": "http://127.0.0.1:8006/mcp"})
    disconnect(file, log)

    assert file.read_text() == THEIRS.replace('"dark"', '"light"')


def test_an_entry_that_was_there_before_us_comes_back(file: Path, log: EditLog):
    theirs = '{"mcpServers": {"pruner": {"url": "http://old", "headers": {"a": "b"}}}, "theme": "dark"}'
    file.write_text(theirs)
    connect(file, log)
    file.write_text(file.read_text().replace("dark", "light"))
    disconnect(file, log)

    assert json.loads(file.read_text()) == json.loads(theirs.replace("dark", "light"))


def test_a_file_that_we_made_goes_with_its_directories(tmp_path: Path, log: EditLog):
    file = tmp_path / "a" / "b" / "mcp.json"
    connect(file, log)
    assert json.loads(file.read_text()) == {"mcpServers": {"pruner": ENTRY}}
    disconnect(file, log)

    assert not (tmp_path / "a").exists()


def test_a_directory_that_is_used_by_others_stays(tmp_path: Path, log: EditLog):
    file = tmp_path / "a" / "mcp.json"
    connect(file, log)
    (tmp_path / "a" / "other").touch()
    disconnect(file, log)

    assert [path.name for path in (tmp_path / "a").iterdir()] == ["other"]


def test_a_file_that_we_made_and_others_filled_stays(tmp_path: Path, log: EditLog):
    file = tmp_path / "mcp.json"
    connect(file, log)
    file.write_text(file.read_text().replace('"mcpServers"', '"theme": "dark", "mcpServers"'))
    disconnect(file, log)

    assert json.loads(file.read_text()) == {"theme": "dark", "mcpServers": {}}


def test_a_file_that_is_gone_needs_no_undoing(file: Path, log: EditLog):
    connect(file, log)
    file.unlink()
    change = disconnect(file, log)

    assert not change.is_needed
    assert not file.exists()
    assert plan_undo(ServerEdit(file, FORM, {}), log) is None


def test_an_entry_that_the_user_removed_stays_removed(file: Path, log: EditLog):
    connect(file, log)
    file.write_text('{"theme": "light"}')
    disconnect(file, log)

    assert file.read_text() == '{"theme": "light"}'


def test_the_diff_shows_what_changes_and_its_surroundings(file: Path, log: EditLog):
    change = plan_edit(ServerEdit(file, FORM, {"url": "u"}), log)

    assert change.diff() == (
        f"--- {file}\n+++ {file}\n@@ -1,5 +1,5 @@\n {{\n     // mine\n"
        '-    "mcpServers": {"other": {"url": "x"}},\n'
        '+    "mcpServers": {"other": {"url": "x"}, "pruner": {"url": "u"}},\n'
        '     "theme": "dark"\n }\n\\ No newline at end of file\n'
    )


def test_mode_and_links_are_kept(file: Path, tmp_path: Path, log: EditLog):
    file.chmod(0o640)
    link = tmp_path / "link.json"
    link.symlink_to(file)
    connect(link, log)

    assert link.is_symlink()
    assert FORM.entry(file.read_text()) == ENTRY
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    disconnect(link, log)
    assert (link.is_symlink(), file.read_text()) == (True, THEIRS)


def test_a_new_file_of_the_user_is_private(tmp_path: Path, log: EditLog):
    file = tmp_path / "new.json"
    apply(plan_edit(ServerEdit(file, FORM, ENTRY), log), log, is_private=True)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_nothing_is_left_beside_the_file(file: Path, tmp_path: Path, log: EditLog):
    connect(file, log)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "state"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": ', "line 1 is not JSON"),
        (b"\xff{}", "not UTF-8"),
        (b"[]", "the file is not an object"),
        (b'{"mcpServers": []}', "mcpServers is not an object"),
        (b'{"mcpServers": {}, "mcpServers": {}}', "more than once"),
        (b'{"a": "\\ud800"}', ""),
    ],
)
def test_what_cannot_be_changed_safely_is_left_as_it_is(file: Path, log: EditLog, content: bytes, why: str):
    file.write_bytes(content)
    if why:
        with pytest.raises(FileRefused, match=f"config.json was not changed.*{why}"):
            plan_edit(ServerEdit(file, FORM, ENTRY), log)
        assert file.read_bytes() == content
    else:
        connect(file, log)
        disconnect(file, log)
        assert file.read_bytes() == content


def test_a_directory_in_the_place_of_the_file_is_refused(tmp_path: Path, log: EditLog):
    with pytest.raises(FileRefused, match="is not a file"):
        plan_edit(ServerEdit(tmp_path, FORM, ENTRY), log)


def test_a_file_with_other_names_is_refused(file: Path, tmp_path: Path, log: EditLog):
    (tmp_path / "other").hardlink_to(file)
    with pytest.raises(FileRefused, match="hard links"):
        connect(file, log)

    assert file.read_text() == THEIRS


def test_a_file_that_changed_after_it_was_shown_is_left_as_it_is(file: Path, log: EditLog):
    change = plan_edit(ServerEdit(file, FORM, ENTRY), log)
    file.write_text("{}")
    with pytest.raises(FileRefused, match="changed by another program"):
        apply(change, log)

    assert file.read_text() == "{}"


def test_a_file_that_may_not_be_written_is_refused(file: Path, log: EditLog):
    file.chmod(0o444)
    with pytest.raises(FileRefused, match="is not writable"):
        bound_by_modes(lambda: connect(file, log))


def test_somebody_else_s_lock_is_respected(file: Path, log: EditLog):
    lock = file.with_name("config.json.lock")
    lock.mkdir()
    edit = ServerEdit(file, FORM, ENTRY, lock)
    with pytest.raises(FileRefused, match="locked by another program"):
        apply(plan_edit(edit, log), log)
    lock.rmdir()
    apply(plan_edit(edit, log), log)

    assert FORM.entry(file.read_text()) == ENTRY
    assert not lock.exists()


def test_a_forgotten_lock_is_taken(file: Path, log: EditLog):
    lock = file.with_name("config.json.lock")
    lock.mkdir()
    os.utime(lock, (1, 1))
    apply(plan_edit(ServerEdit(file, FORM, ENTRY, lock), log), log)

    assert FORM.entry(file.read_text()) == ENTRY


def test_the_bytes_from_before_are_kept_where_only_the_user_can_look(file: Path, log: EditLog):
    connect(file, log)
    place = log.folder_of(file)

    assert (place / "before").read_text() == THEIRS
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "before").stat().st_mode) == 0o600


@pytest.mark.parametrize("theirs", ["# Mine\n", "# Mine", "", None])
def test_rules_get_a_block_that_goes_without_a_trace(tmp_path: Path, log: EditLog, theirs: str | None):
    file = tmp_path / "rules" / "CLAUDE.md"
    if theirs is not None:
        file.parent.mkdir()
        file.write_text(theirs)
    edit = RulesEdit(file, "ours", "---\nx: 1\n---\n")
    apply(plan_edit(edit, log), log)
    assert "ours" in file.read_text()
    assert not plan_edit(edit, log).is_needed
    undoing = plan_undo(edit, log)
    assert undoing is not None
    apply(undoing, log)

    assert (file.read_text() if file.exists() else None) == theirs


def test_rules_that_changed_since_lose_our_block_alone(tmp_path: Path, log: EditLog):
    file = tmp_path / "CLAUDE.md"
    edit = RulesEdit(file, "ours", "---\nx: 1\n---\n")
    apply(plan_edit(edit, log), log)
    file.write_text(file.read_text() + "mine\n")
    undoing = plan_undo(edit, log)
    assert undoing is not None
    apply(undoing, log)

    assert file.read_text() == "---\nx: 1\n---\n\nmine\n"
