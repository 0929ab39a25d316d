"""`grep`: exact hits in a fixed order, from inside the roots only, whatever the pattern is."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.permissions import bound_by_modes
from tests.support.processes import Children, scripted, until
from tests.support.services.tools.toolbox import toolbox

from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import read as read_marker
from kimi_proxy.features.tool import ToolAnswer
from kimi_proxy.proxy.search import ripgrep

SECRET = "needle from outside"
RG = ripgrep()

needs_rg = pytest.mark.skipif(RG is None, reason="ripgrep is not installed")


@dataclass(frozen=True)
class World:
    """A project, and the program that searches it."""

    folder: Path
    rg: str | None

    async def call(self, **arguments: JsonValue) -> ToolAnswer:
        async with toolbox(self.folder, rg=self.rg) as box:
            return await box.call("grep", **arguments)

    async def text(self, **arguments: JsonValue) -> str:
        return (await self.call(**arguments)).text

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", "-C", str(self.folder), *arguments], check=True)


@pytest.fixture(params=["ripgrep", "grep", "grep in a repository"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Searched with each of the programs that may be there."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("import os\n\ndef needle():\n    return os.sep\n\n# the needle ends\n")
    (folder / "src" / "b.txt").write_text("nothing\nneedle: 12:34\r\n")
    (folder / ".hidden").write_text("needle in hiding\n")
    (folder / "binary").write_bytes(b"needle\0needle\n")
    (tmp_path / "outside.txt").write_text(SECRET)
    if request.param == "ripgrep" and RG is None:
        pytest.skip("ripgrep is not installed")
    world = World(folder, RG if request.param == "ripgrep" else None)
    if request.param == "grep in a repository":
        world.git("init", "-q")
    return world


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


async def text_of(folder: Path, **arguments: JsonValue) -> str:
    async with toolbox(folder) as box:
        return (await box.call("grep", **arguments)).text


async def test_hits_are_path_line_and_exact_content(world: World):
    assert await world.text(pattern="needle") == (
        "src/a.py:3:def needle():\nsrc/a.py:6:# the needle ends\nsrc/b.txt:2:needle: 12:34\r"
    )


async def test_lines_around_a_hit_are_marked_as_such(world: World):
    assert await world.text(pattern="needle", path="src", context_lines=1) == (
        "src/a.py-2-\nsrc/a.py:3:def needle():\nsrc/a.py-4-    return os.sep\nsrc/a.py-5-\n"
        "src/a.py:6:# the needle ends\n--\nsrc/b.txt-1-nothing\nsrc/b.txt:2:needle: 12:34\r"
    )


async def test_groups_apart_are_separated(world: World):
    (world.folder / "src" / "a.py").write_text("needle\n" + "hay\n" * 5 + "needle\n")

    assert await world.text(pattern="needle", path="src/a.py", context_lines=1) == (
        "src/a.py:1:needle\nsrc/a.py-2-hay\n--\nsrc/a.py-6-hay\nsrc/a.py:7:needle"
    )


async def test_many_patterns_and_one_file(world: World):
    assert await world.text(patterns=["import", "return"], path="./src/a.py") == (
        "./src/a.py:1:import os\n./src/a.py:4:    return os.sep"
    )


async def test_a_glob_chooses_files(world: World):
    assert await world.text(pattern="needle", glob="*.txt") == "src/b.txt:2:needle: 12:34\r"


async def test_no_match_is_no_error(world: World):
    answer = await world.call(pattern="nowhere to be found")

    assert (answer.text, answer.is_error) == ("[kimi-proxy] no match", False)


@pytest.mark.skipif(sys.platform != "linux", reason="names are UTF-8 there")
async def test_a_name_in_another_encoding_is_shown_in_characters_that_a_provider_takes(world: World):
    (world.folder / os.fsdecode(b"caf\xe9.txt")).write_text("a zebra\n")

    assert await world.text(pattern="zebra") == "café.txt:1:a zebra"


async def test_a_link_to_a_directory_is_no_error(world: World):
    (world.folder / "link").symlink_to("src")

    found, nothing = await world.call(pattern="needle:"), await world.call(pattern="zebra")

    assert (found.text, found.is_error) == ("src/b.txt:2:needle: 12:34\r", False)
    assert (nothing.text, nothing.is_error) == ("[kimi-proxy] no match", False)


async def test_a_pattern_that_looks_like_an_option_is_a_pattern(world: World):
    (world.folder / "src" / "a.py").write_text("--files -l -e\n")

    assert await world.text(pattern="--files", path="src") == "src/a.py:1:--files -l -e"
    assert await world.text(patterns=["-e", "-l"], path="src") == "src/a.py:1:--files -l -e"


async def test_a_pattern_that_means_nothing_is_an_error_that_says_why(world: World):
    answer = await world.call(pattern="(unclosed")

    assert answer.is_error
    assert "(" in answer.text


async def test_hidden_files_are_searched_only_when_named(world: World):
    assert ".hidden" not in await world.text(pattern="needle")
    assert await world.text(pattern="needle", path=".hidden") == ".hidden:1:needle in hiding"


@pytest.mark.parametrize("world", ["ripgrep", "grep in a repository"], indirect=True)
async def test_ignored_files_are_left_out(world: World):
    world.git("init", "-q")
    (world.folder / ".gitignore").write_text("b.txt\n")

    assert "b.txt" not in await world.text(pattern="needle")


async def test_a_long_line_is_shown_around_its_match(world: World):
    (world.folder / "src" / "a.py").write_text("x" * 5000 + "needle" + "é" * 5000 + "\nneedle\n")

    lines = (await world.text(pattern="needle", path="src/a.py")).split("\n")

    assert lines[1] == "src/a.py:2:needle"
    assert len(lines[0]) < 600
    assert lines[0].startswith("src/a.py:1:")
    assert lines[0].endswith("…")


@needs_rg
async def test_a_long_line_shows_where_it_matches(folder: Path):
    (folder / "a.min.js").write_text("x" * 50_000 + "needle" + "é" * 5000)

    line = await text_of(folder, pattern="needle")

    assert line.startswith("a.min.js:1:…x")
    assert "xneedleé" in line


async def test_more_matches_than_wanted_are_counted(world: World):
    (world.folder / "src" / "a.py").write_text("needle\n" * 30)

    lines = (await world.text(pattern="needle", path="src/a.py", max_matches=3, context_lines=2)).split("\n")

    assert lines == [
        *(f"src/a.py:{n}:needle" for n in (1, 2, 3)),
        "[kimi-proxy] 3 of 30 matches shown: narrow the pattern, path or glob",
    ]


@needs_rg
async def test_very_many_matches_give_the_first_in_the_order_of_paths(folder: Path):
    for n in range(60):
        (folder / f"f{n:02}").write_text("needle\n" * 1000)

    lines = (await text_of(folder, pattern="needle", max_matches=2)).split("\n")

    assert lines == [
        "f00:1:needle",
        "f00:2:needle",
        "[kimi-proxy] 2 of many matches shown: narrow the pattern, path or glob",
    ]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, "patterns"),
        ({"pattern": "a", "patterns": ["b"]}, "patterns"),
        ({"patterns": []}, "patterns"),
        ({"patterns": ["a"] * 51}, "patterns"),
        ({"pattern": ""}, "pattern"),
        ({"pattern": "a\0"}, "pattern"),
        ({"pattern": "a" * 100_000}, "pattern"),
        ({"pattern": "a", "context_lines": 51}, "context_lines"),
        ({"pattern": "a", "max_matches": 0}, "max_matches"),
        ({"pattern": "a", "max_matches": 1001}, "max_matches"),
        ({"pattern": "a", "glob": 5}, "glob"),
        ({"pattern": "a", "regex": True}, "regex"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_wrong_argument_is_refused_by_name(folder: Path, arguments: dict[str, JsonValue], field: str):
    async with toolbox(folder) as box:
        with pytest.raises(InvalidParams) as refused:
            await box.call("grep", **arguments)

    assert refused.value.field.split(".")[0] == field


@pytest.mark.parametrize("path", ["..", "/etc", "../outside.txt", "out", "fifo", "nothing", ".env"])
async def test_what_may_not_be_searched_is_an_error(world: World, path: str):
    (world.folder / "out").symlink_to(world.folder.parent)
    (world.folder / ".env").write_text("needle")
    os.mkfifo(world.folder / "fifo")
    answer = await world.call(pattern="needle", path=path)

    assert answer.is_error
    assert SECRET not in answer.text


async def test_links_in_a_tree_lead_nowhere(world: World):
    (world.folder / "src" / "link.txt").symlink_to(world.folder.parent / "outside.txt")
    (world.folder / "src" / "dir").symlink_to(world.folder.parent)
    if (world.folder / ".git").exists():
        world.git("add", "-A")

    assert SECRET not in await world.text(pattern="needle")


SWAP = """
import os, sys
os.chdir(sys.argv[1])
print("ready", flush=True)
while True:
    os.rename("door", "spare"); os.rename("trap", "door"); os.rename("door", "trap"); os.rename("spare", "door")
"""


@needs_rg
async def test_a_directory_that_is_swapped_for_a_link_shows_nothing_from_outside(folder: Path):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text(SECRET)
    (folder / "door").mkdir()
    (folder / "door" / "file").write_text("needle from inside")
    (folder / "trap").symlink_to(outside)

    async with toolbox(folder) as box:
        with scripted(SWAP, folder):
            seen = [(await box.call("grep", pattern="needle", path=path)).text for path in ("door", ".") * 60]

    assert SECRET not in "".join(seen)
    assert "door/file:1:needle from inside" in "".join(seen)


@pytest.mark.parametrize("pattern", ["(a+)+$", "(.*)*x", "(a|aa)*b", "(x+x+)+y"])
async def test_no_pattern_takes_forever(world: World, pattern: str):
    (world.folder / "src" / "a.py").write_text("a" * 40 + "!\n" + "a" * 1_000_000 + "\n")
    started = time.monotonic()

    await world.text(pattern=pattern, path="src/a.py")

    assert time.monotonic() - started < 60


def test_partial_results_are_shown_with_the_error(world: World):
    (world.folder / "src" / "locked.txt").write_text("needle")
    (world.folder / "src" / "locked.txt").chmod(0)
    answer = bound_by_modes(lambda: asyncio.run(world.call(pattern="needle")))

    assert "src/a.py:3:def needle():" in answer.text
    assert answer.is_error


@needs_rg
async def test_an_incomplete_search_shows_what_it_found_and_what_went_wrong(folder: Path):
    (folder / "a").write_text("needle\n")
    grumpy = folder / "rg"
    grumpy.write_text(f"#!/bin/sh\n{RG} \"$@\"\necho 'rg: locked: Permission denied (os error 13)' >&2\nexit 2\n")
    grumpy.chmod(0o755)

    answer = await World(folder, str(grumpy)).call(pattern="needle", path="a")

    assert answer.text == (
        "a:1:needle\n[kimi-proxy] the search was not complete: rg: locked: Permission denied (os error 13)"
    )
    assert answer.is_error


@needs_rg
async def test_with_a_question_hits_go_and_can_be_recovered(folder: Path):
    for n in range(40):
        (folder / f"module_{n:02}.py").write_text(
            "".join(f"value_{k} = compute_{n}_{k}(needle, offset={k})\n" for k in range(20))
        )
    (folder / "retry.py").write_text("def needle_retry_budget(request):\n    return request.needle.retries\n")

    async with toolbox(folder) as box:
        plain = await box.call("grep", pattern="needle", max_matches=1000)
        answer = await box.call(
            "grep", pattern="needle", max_matches=1000, context_focus_question="Where is the retry budget computed?"
        )
        pruning = answer.meta["pruning"]
        assert isinstance(pruning, dict)
        assert pruning["applied"] is True
        recovered = await box.recovered(str(pruning["prune_id"]))

    assert recovered == plain.text
    assert "retry.py:1:def needle_retry_budget(request):" in answer.text
    kept = [line for line in answer.text.split("\n")[:-1] if read_marker(line) is None]
    assert set(kept) <= set(plain.text.split("\n"))


SLOW_RG = "#!/bin/sh\nexec sleep 600\n"


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")
async def test_searches_that_take_long_keep_no_thread_from_others_and_end_with_their_callers(
    tmp_path: Path, my_children: Children
):
    slow = tmp_path / "rg"
    slow.write_text(SLOW_RG)
    slow.chmod(0o700)
    (tmp_path / "work").mkdir()
    async with toolbox(tmp_path / "work", rg=str(slow)) as box:
        searches = [asyncio.create_task(box.call("grep", pattern="x")) for _ in range(40)]
        await until(lambda: len(my_children()) >= 8)
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(lambda: "free") == "free"
        for search in searches:
            search.cancel()
        await asyncio.wait(searches)
        await until(lambda: not my_children())
