"""Over HTTP the tools' paths begin where their client works, if it says so: with the official client, in every era."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.clients import sdks
from tests.support.api import wire
from tests.support.api.pruner_world import pruner

from kimi_proxy.core.json import JsonObject

if TYPE_CHECKING:
    from mcp import Client

ERAS = ["2026-07-28", "legacy"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roots")


@pytest.fixture(scope="module")
def project(place: Path) -> Path:
    """The folder of a client, which is not the server's."""
    (place / "pro ject" / "src").mkdir(parents=True)
    (place / "pro ject" / "src" / "app.py").write_text("needle = 1\n")
    (place / "pro ject" / "src" / ".env").write_text("needle = secret\n")
    return place / "pro ject"


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[int]:
    toml = '[tools]\nbash_over_http = true\ndenied_names = [".env"]\n'
    with pruner(place / "state", toml) as port:
        yield port


@asynccontextmanager
async def client(port: int, era: str, roots: Callable[[], list[str]] | None) -> AsyncIterator["Client"]:
    types = sdks.mcp.types

    async def listed(context: object) -> object:
        return types.ListRootsResult(roots=[types.Root(uri=uri) for uri in (roots() if roots else [])])

    answer = {"list_roots_callback": listed} if roots else {}
    async with sdks.mcp.Client(f"http://127.0.0.1:{port}/mcp", mode=era, read_timeout_seconds=60, **answer) as one:
        yield one


async def text(one: "Client", name: str, **arguments: object) -> str:
    return str((await one.call_tool(name, arguments)).content[0].text)


@pytest.mark.parametrize("era", ERAS)
async def test_paths_begin_in_the_clients_first_root(era: str, server: int, project: Path):
    async with client(server, era, lambda: ["file:///nowhere", "file://elsewhere/tmp", project.as_uri()]) as one:
        read = await text(one, "read", file_path="src/app.py")
        found = await text(one, "grep", pattern="needle")
        ran = await text(one, "bash", command="pwd")
        here = await text(one, "read", file_path=str(Path.cwd() / "pyproject.toml"), end_line=1)

    assert read == "needle = 1\n"
    assert (found, ran) == ("src/app.py:1:needle = 1", f"{project}\n")
    assert "outside" not in here


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_private_denied_or_linked_elsewhere_stays_so(era: str, server: int, place: Path, project: Path):
    if not (project / "out").is_symlink():
        (project / "out").symlink_to("/etc")
    async with client(server, era, lambda: [project.as_uri()]) as one:
        denied = await text(one, "read", file_path="src/.env")
        linked = await text(one, "read", file_path="out/hostname")
    async with client(server, era, lambda: [(place / "state").as_uri(), "file:///"]) as one:
        kept = await text(one, "bash", command="pwd")

    assert "denied_names" in denied
    assert "outside the allowed directories" in linked
    assert kept == f"{Path.cwd()}\n"


async def test_a_client_is_asked_once_and_again_when_its_roots_change(server: int, project: Path):
    asked: list[Path] = [project / "src"]
    times: list[int] = []

    def roots() -> list[str]:
        times.append(1)
        return [asked[-1].as_uri()]

    async with client(server, "legacy", roots) as one:
        first = [await text(one, "bash", command="pwd") for _ in range(2)]
        asked.append(project)
        with pytest.warns(Warning, match="deprecated"):
            await one.send_roots_list_changed()
        after = await text(one, "bash", command="pwd")

    assert (first, after) == ([f"{project / 'src'}\n"] * 2, f"{project}\n")
    assert len(times) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_without_roots_the_answer_says_where_paths_begin_and_what_to_change(era: str, server: int):
    async with client(server, era, None) as one:
        missing = [await text(one, *call, **more) for call, more in MISSING]

    assert all("roots = [" in said and str(Path.cwd()) in said for said in missing), missing


MISSING: list[tuple[tuple[str], dict[str, object]]] = [
    (("read",), {"file_path": "src/missing.py"}),
    (("grep",), {"pattern": "x", "path": "src/missing"}),
    (("grep",), {"pattern": "no such" + " text anywhere", "path": "docs"}),
]


async def test_settings_that_name_folders_are_never_widened(place: Path, project: Path):
    with pruner(place / "other", MCP_PRUNER_CWD=str(project / "src")) as port:
        async with client(port, "legacy", lambda: [project.as_uri()]) as one:
            outside = await text(one, "read", file_path=str(project / "src" / ".." / "readme"))
            inside = await text(one, "read", file_path="app.py")

    assert "outside the allowed directories" in outside
    assert inside == "needle = 1\n"


@pytest.mark.parametrize("header", ["x-forwarded-for: 10.0.0.9", "forwarded: for=10.0.0.9"])
def test_a_client_behind_a_proxy_is_not_asked(header: str, server: int, project: Path):
    hello: JsonObject = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": {}}
    message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    name, _, value = header.partition(": ")
    own, other = (wire.post(server, "/mcp", message, more) for more in ((), ((name, value),)))

    assert own.headers["mcp-session-id"].startswith("roots-")
    assert "mcp-session-id" not in other.headers


async def test_a_root_must_be_the_users_own(server: int, tmp_path: Path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another account")
    os.chown(tmp_path, 12345, 12345)
    async with client(server, "legacy", lambda: [tmp_path.as_uri()]) as one:
        assert await text(one, "bash", command="pwd") == f"{Path.cwd()}\n"
