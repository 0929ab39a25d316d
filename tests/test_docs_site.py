"""The documentation as a site: every link leads somewhere, and a reader's browser asks no other server."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.deep import deep

ROOT = Path(__file__).parents[1]
LOADED = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"'>\s]+""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    build = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


def test_it_is_built_without_a_warning_and_every_page_is_there(site: Path):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}

    assert {path.stem for path in site.glob("*.html")} == pages | {"404"}


def test_every_page_can_be_reached_from_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]

    named = re.findall(r": ([\w-]+\.md)$", navigation, re.M)
    assert sorted(named) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))


def test_no_page_loads_anything_from_elsewhere(site: Path):
    assert [found for page in site.glob("*.html") for found in LOADED.findall(page.read_text("utf-8"))] == []


@deep("it builds the whole site a second time")
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[two](two.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\n")
    build = [Path(sys.executable).with_name("zensical"), "build", "--strict"]

    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode != 0
