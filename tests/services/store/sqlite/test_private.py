"""Nobody else reads what is kept."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.services.store.making import an_original, opened

from kimi_proxy.services.store.sqlite.store import store_path

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")


def modes(directory: Path) -> dict[str, int]:
    return {str(p.relative_to(directory)): stat.S_IMODE(p.stat().st_mode) for p in directory.rglob("*")}


@pytest.fixture(params=[0o000, 0o077, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_nobody_else_can_read_the_store_whatever_the_umask(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as store:
        await store.originals.keep(an_original())
        found = modes(tmp_path)
    assert found == {
        "home": 0o700,
        "home/store": 0o700,
        "home/store/originals.sqlite3": 0o600,
        "home/store/originals.sqlite3-journal": 0o600,
    }


async def test_a_store_that_was_open_to_others_is_closed_and_its_home_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path / "home"):
        pass
    store = store_path(tmp_path / "home")
    for path, mode in ((store, 0o644), (store.parent, 0o755), (tmp_path / "home", 0o755)):
        path.chmod(mode)
    async with opened(tmp_path / "home") as again:
        await again.originals.keep(an_original())
    found = modes(tmp_path)
    assert (found["home"], found["home/store"], found["home/store/originals.sqlite3"]) == (0o755, 0o700, 0o600)
