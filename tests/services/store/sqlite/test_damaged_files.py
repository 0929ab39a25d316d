"""Damaged files are moved out of the way, and nothing else is."""

from pathlib import Path

import pytest

from kimi_proxy.proxy.private_files import identity
from kimi_proxy.services.store.sqlite.database import set_aside, set_aside_files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "originals.sqlite3"
    path.write_bytes(b"damaged")
    return path


def test_a_damaged_file_goes_together_with_its_journal(path: Path) -> None:
    path.with_name("originals.sqlite3-journal").write_bytes(b"its journal")
    set_aside(path, identity(path) or (0, 0))
    (damaged,) = map(Path, set_aside_files(path))
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == {
        damaged.name: b"damaged",
        f"{damaged.name}-journal": b"its journal",
    }


def test_a_fresh_file_that_another_process_has_begun_is_left_alone(path: Path) -> None:
    seen = identity(path) or (0, 0)
    path.rename(path.with_name("elsewhere"))
    path.write_bytes(b"fresh")
    set_aside(path, seen)
    assert path.read_bytes() == b"fresh"
    assert set_aside_files(path) == ()


def test_a_file_that_another_process_has_already_moved_is_no_trouble(path: Path) -> None:
    seen = identity(path) or (0, 0)
    path.unlink()
    set_aside(path, seen)
    assert [*path.parent.iterdir()] == []
