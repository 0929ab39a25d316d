"""The path suite: what is below a root can be read, and nothing else can, whoever swaps what meanwhile."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.deep import IS_DEEP
from tests.support.permissions import bound_by_modes
from tests.support.processes import scripted

from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.proxy.files import Workspace, workspace

SECRET = b"a secret from outside\n"
INSIDE = b"from inside\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "file.txt").write_bytes(SECRET)
    return place


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    place = tmp_path / "root"
    (place / "sub" / "deep").mkdir(parents=True)
    (place / "file.txt").write_bytes(INSIDE)
    (place / "sub" / "deep" / "file.txt").write_bytes(INSIDE)
    return place


@pytest.fixture
def space(root: Path) -> Workspace:
    return workspace(root, denied_names=(".env", ".ssh"))


def content(space: Workspace, path: str) -> bytes:
    with space.open_file(path) as fd:
        return os.read(fd, 100)


def refusal(space: Workspace, path: str) -> str:
    with pytest.raises(ToolFailed) as refused, space.open_file(path):
        pass
    assert SECRET.decode().strip() not in str(refused.value)
    return refused.value.reason


@pytest.mark.parametrize(
    "path",
    [
        "file.txt",
        "./file.txt",
        "sub/../file.txt",
        "sub/deep/file.txt",
        "sub//deep/./file.txt",
        "sub/deep/../../file.txt",
    ],
)
def test_a_file_below_the_root_is_read(space: Workspace, path: str):
    assert content(space, path) == INSIDE


def test_an_absolute_path_below_the_root_is_read(space: Workspace, root: Path):
    assert content(space, str(root / "sub" / "deep" / "file.txt")) == INSIDE


def test_a_root_reached_through_a_link_of_the_users_own_is_read(tmp_path: Path, root: Path):
    (tmp_path / "alias").symlink_to(root)

    assert content(workspace(tmp_path / "alias"), str(tmp_path / "alias" / "file.txt")) == INSIDE


def test_links_that_stay_inside_are_followed(space: Workspace, root: Path):
    (root / "to_file").symlink_to("sub/deep/file.txt")
    (root / "to_dir").symlink_to(root / "sub")
    (root / "sub" / "up").symlink_to("..")

    assert content(space, "to_file") == INSIDE
    assert content(space, "to_dir/deep/file.txt") == INSIDE
    assert content(space, "sub/up/sub/up/file.txt") == INSIDE


@pytest.mark.parametrize(
    "path",
    ["../outside/file.txt", "sub/../../outside/file.txt", "/etc/passwd", "/", "..", "/proc/self/environ", "/dev/zero"],
)
def test_a_path_that_leads_out_is_refused(space: Workspace, path: str):
    assert refusal(space, path) == "outside_roots"


def test_a_missing_file_outside_is_refused_like_an_existing_one(space: Workspace):
    assert refusal(space, "../outside/nothing.txt") == "outside_roots"


def test_a_directory_whose_name_begins_like_the_root_is_outside(space: Workspace, root: Path):
    evil = root.with_name("root-evil")
    evil.mkdir()
    (evil / "file.txt").write_bytes(SECRET)

    assert refusal(space, "../root-evil/file.txt") == "outside_roots"
    assert refusal(space, str(evil / "file.txt")) == "outside_roots"


def test_links_that_lead_out_are_refused(space: Workspace, root: Path, outside: Path):
    (root / "to_file").symlink_to(outside / "file.txt")
    (root / "to_dir").symlink_to("../outside")
    (root / "chain").symlink_to("to_dir")

    assert [refusal(space, path) for path in ("to_file", "to_dir/file.txt", "chain/file.txt")] == ["outside_roots"] * 3


def test_a_loop_of_links_is_refused(space: Workspace, root: Path):
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    (root / "self").symlink_to("self/x")

    assert refusal(space, "a") == "symlink_loop"
    assert refusal(space, "a/file.txt") in ("symlink_loop", "not_found")
    assert refusal(space, "self") in ("symlink_loop", "not_found")


def test_what_is_not_a_file_is_refused_without_waiting(space: Workspace, root: Path):
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(root, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/socket")  # a socket's path may not be long
        os.close(here)

    assert [refusal(space, path) for path in ("fifo", "socket", "sub", ".")] == ["not_a_file"] * 4


@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "/proc/1/cmdline", "/sys/kernel/notes", "/dev/zero", "/dev/null"]
)
def test_the_system_is_no_file_even_when_everything_is_allowed(tmp_path: Path, path: str):
    assert refusal(workspace(tmp_path, roots=("/",)), path) == "not_a_file"


@pytest.mark.parametrize("path", ["", "a\0b", "file.txt\0/../../etc/passwd", "\ud800"])
def test_what_cannot_be_a_path_is_refused(space: Workspace, path: str):
    assert refusal(space, path) == "invalid_path"


def test_a_name_that_is_too_long_is_refused(space: Workspace):
    assert refusal(space, "x" * 300) == "invalid_path"


def test_an_error_that_has_no_number_is_an_error_of_the_disk(space: Workspace):
    assert space.refusal_of("file.txt", OSError("gone")).reason == "io_error"


def test_missing_files_and_files_used_as_directories_are_not_found(space: Workspace):
    assert refusal(space, "nothing.txt") == "not_found"
    assert refusal(space, "file.txt/x") == "not_found"


def test_names_on_the_list_are_denied_also_behind_a_link(space: Workspace, root: Path):
    (root / ".env").write_bytes(SECRET)
    (root / ".ssh").mkdir()
    (root / ".ssh" / "id_ed25519").write_bytes(SECRET)
    (root / "harmless").symlink_to(".env")

    assert [refusal(space, path) for path in (".env", ".ssh/id_ed25519", "harmless")] == ["denied"] * 3


def test_our_own_state_is_denied_under_any_name(tmp_path: Path, root: Path):
    state = root / "state"
    (state / "db").mkdir(parents=True)
    (state / "db" / "file.txt").write_bytes(SECRET)
    (root / "alias").symlink_to("state")
    space = workspace(root, private=(state,))

    assert refusal(space, "state/db/file.txt") == "denied"
    assert refusal(space, "alias/db/file.txt") == "denied"
    # as if the same directory were mounted, or spelt, under another path
    moved = Workspace(space.cwd, space.roots, (tmp_path / "elsewhere",))
    (tmp_path / "elsewhere").symlink_to(state)
    assert refusal(moved, "state/db/file.txt") == "denied"


def test_names_that_look_alike_are_different_names(space: Workspace, root: Path):
    (root / "caf\u00e9").write_bytes(INSIDE)

    assert content(space, "caf\u00e9") == INSIDE
    assert refusal(space, "cafe\u0301") == "not_found"


def test_a_name_that_is_not_utf8_is_read(space: Workspace, root: Path):
    (root / os.fsdecode(b"\xff.txt")).write_bytes(INSIDE)

    assert content(space, "\udcff.txt") == INSIDE


def test_a_file_without_permission_is_refused(space: Workspace, root: Path):
    (root / "file.txt").chmod(0)

    assert bound_by_modes(lambda: refusal(space, "file.txt")) == "permission_denied"


def test_a_directory_is_found_for_searching_and_a_file_is_none(space: Workspace, root: Path):
    assert space.directory("sub/../sub") == root / "sub"
    for path in ("file.txt", "nothing"):
        with pytest.raises(ToolFailed):
            space.directory(path)


SWAP = """
import ctypes, os, sys
os.chdir(sys.argv[1])
libc = ctypes.CDLL(None)
exchange = getattr(libc, "renameat2", None)
print("ready", flush=True)
while True:
    if exchange is None or exchange(-100, b"door", -100, b"trap", 2):
        os.rename("door", "spare"); os.rename("trap", "door"); os.rename("spare", "trap")
"""


def race(space: Workspace, path: str, times: int, see: Callable[[bytes], None]) -> None:
    """Open `path` so often, and then on until a swap was met both ways."""
    read = refused = 0
    deadline = time.monotonic() + 60
    while read + refused < times or not (read and refused):
        assert time.monotonic() < deadline, "the swaps and the reads never met"
        try:
            see(content(space, path))
            read += 1
        except ToolFailed:
            refused += 1


@pytest.mark.parametrize(("trap", "times"), [("directory", 10_000 if IS_DEEP else 2_000), ("file", 2_000)])
def test_thousands_of_races_against_a_swapped_link_never_lead_out(
    space: Workspace, root: Path, outside: Path, trap: str, times: int
):
    if trap == "directory":
        (root / "door").mkdir()
        (root / "door" / "file.txt").write_bytes(INSIDE)
        (root / "trap").symlink_to(outside)
    else:
        (root / "door").write_bytes(INSIDE)
        (root / "trap").symlink_to(outside / "file.txt")
    seen: set[bytes] = set()

    with scripted(SWAP, root):
        race(space, "door/file.txt" if trap == "directory" else "door", times, seen.add)

    assert seen == {INSIDE}
