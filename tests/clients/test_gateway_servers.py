"""Published MCP servers behind the gateway, over stdio and over HTTP."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from mcp import Client
from tests.api.proxy_world import Proxy, proxy
from tests.clients.servers import INSTALL_S, direct, git_server, node_program
from tests.processes import until

from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import read_mask

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

TEXT = "".join(f"line {i} of a file that is much too long to read, é\u2028\r\n" for i in range(6000))
LIST: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "big.txt").write_bytes(TEXT.encode())
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


def command(server: str, folder: Path) -> list[str]:
    match server:
        case "filesystem":
            return [node_program("mcp-server-filesystem"), str(folder)]
        case "fast-filesystem":
            return [node_program("fast-filesystem-mcp"), str(folder)]
        case "everything":
            return [node_program("mcp-server-everything"), "stdio"]
        case "memory":
            return [node_program("mcp-server-memory")]
        case "sequential-thinking":
            return [node_program("mcp-server-sequential-thinking")]
        case "git":
            return [*git_server(), "--repository", str(_repository(folder))]
    raise AssertionError(server)


def _repository(folder: Path) -> Path:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *arguments], cwd=folder, check=True
        )

    if not (folder / ".git").exists():
        git("init", "-q")
        git("add", "big.txt")
        git("commit", "-q", "-m", "Add a long file")
    return folder


@asynccontextmanager
async def behind(server: str, folder: Path, more: str = "") -> AsyncIterator[Proxy]:
    program, *args = command(server, folder)
    toml = (
        f"[mcp.servers.x]\ncommand = {json.dumps(program)}\nargs = {json.dumps(args)}\nstart_timeout_s = 60\n{more}\n"
    )
    async with proxy(folder.parent / "home", toml) as world:
        yield world


def call(name: str, **arguments: JsonValue) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


SERVERS = ["filesystem", "fast-filesystem", "everything", "memory", "sequential-thinking", "git"]


@pytest.mark.parametrize("server", SERVERS)
async def test_the_tools_are_those_of_the_server_and_one_more(server: str, folder: Path):
    (expected,) = await direct(command(server, folder), LIST)
    async with behind(server, folder) as world:
        listed = (await world.rpc("x", LIST)).json()["result"]

    assert listed["tools"][-1]["name"] == "recover_text"
    assert json.dumps({**listed, "tools": listed["tools"][:-1]}) == json.dumps(expected["result"])


READS = [
    ("filesystem", "read_text_file", {"path": "{folder}/big.txt"}),
    ("fast-filesystem", "fast_read_file", {"path": "{folder}/big.txt"}),
    ("git", "git_show", {"repo_path": "{folder}", "revision": "HEAD"}),
]


@pytest.mark.parametrize(("server", "tool", "arguments"), READS)
async def test_a_long_read_comes_masked_and_is_recovered_byte_for_byte(
    server: str, tool: str, arguments: dict[str, str], folder: Path
):
    asked: JsonObject = {key: value.format(folder=folder) for key, value in arguments.items()}
    (expected,) = await direct(command(server, folder), call(tool, **asked))
    async with behind(server, folder) as world:
        shown = await world.call("x", tool, **asked)
        assert len(json.dumps(shown)) < 15_000 < 300_000 < len(json.dumps(expected["result"]))
        recovered = await _mended(shown, world)

    assert recovered == expected["result"]


async def _mended(value: JsonValue, world: Proxy) -> JsonValue:
    """`value` with every masked string recovered; a JSON text is mended inside."""
    if isinstance(value, dict):
        return {key: await _mended(item, world) for key, item in value.items()}
    if isinstance(value, list):
        return [await _mended(item, world) for item in value]
    marker = read_mask(value) if isinstance(value, str) else None
    if marker is None or not isinstance(value, str):
        return value
    if value.startswith("{"):
        return json.dumps(await _mended(json.loads(value), world), indent=2, ensure_ascii=False)
    answer = await world.call("x", "recover_text", id=marker.mask_id)
    text: JsonValue = answer["content"][0]["text"]  # type: ignore[index,call-overload]
    return text


@pytest.mark.parametrize("server", ["filesystem", "fast-filesystem"])
async def test_what_the_agent_recovers_is_the_file(server: str, folder: Path):
    tool = "read_text_file" if server == "filesystem" else "fast_read_file"
    async with behind(server, folder) as world:
        marker = read_mask(json.dumps(await world.call("x", tool, path=str(folder / "big.txt"))))
        assert marker is not None
        answer = await world.call("x", "recover_text", id=marker.mask_id)
        part = await world.http.get(f"/api/mask/{marker.mask_id}?lines=3000-3001")

    assert answer["content"][0]["text"].encode() == (folder / "big.txt").read_bytes()  # type: ignore[index,call-overload]
    assert part.json()["text"] == "\n".join(TEXT.split("\n")[2999:3001])


async def test_a_root_holds_where_the_server_itself_lets_go(folder: Path):
    root = f"root = {json.dumps(str(folder))}"
    async with behind("fast-filesystem", folder, root) as world:
        for path in (folder / "link.txt", folder / ".." / "secret.txt", folder.parent / "secret.txt"):
            response = await world.rpc("x", call("fast_read_file", path=str(path)))
            assert "leads out of the workspace" in response.json()["error"]["message"]
        assert "big.txt" in json.dumps(await world.call("x", "fast_list_directory", path=str(folder)))


async def test_a_masked_read_cannot_be_written_back(folder: Path):
    path = str(folder / "big.txt")
    async with behind("filesystem", folder) as world:
        shown = await world.call("x", "read_text_file", path=path)
        text = shown["content"][0]["text"]  # type: ignore[index,call-overload]
        response = await world.rpc("x", call("write_file", path=path, content=text))

    assert response.json()["error"]["code"] == -32602
    assert (folder / "big.txt").read_bytes() == TEXT.encode()


@contextmanager
def everything_over_http(port: int) -> Iterator[str]:
    process = subprocess.Popen(
        [node_program("mcp-server-everything"), "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def _listening(url: str) -> None:
    port = int(url.rpartition(":")[2].partition("/")[0])

    def answers() -> bool:
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", port)) == 0

    await until(answers, within_s=30)


async def test_a_server_over_http_is_the_same_behind_the_gateway(folder: Path):
    (expected,) = await direct(command("everything", folder), LIST)
    with everything_over_http(free_port()) as url:
        await _listening(url)
        async with proxy(folder.parent / "home", f'[mcp.servers.x]\nurl = "{url}"\n') as world:
            listed = (await world.rpc("x", LIST)).json()["result"]["tools"]
            echoed = await world.call("x", "echo", message="x" * 9000)
            image = await world.call("x", "get-tiny-image")
            sums = await asyncio.gather(*(world.call("x", "get-sum", a=n, b=1) for n in range(40)))

    assert listed[:-1] == expected["result"]["tools"]  # type: ignore[index,call-overload]
    assert read_mask(json.dumps(echoed)) is not None
    assert image["content"][1]["data"].startswith("iVBOR")  # type: ignore[index,call-overload,union-attr]
    assert [s["content"][0]["text"] for s in sums] == [  # type: ignore[index,call-overload]
        f"The sum of {n} and 1 is {n + 1}." for n in range(40)
    ]


async def test_a_server_over_http_that_restarts_is_met_anew(folder: Path):
    port = free_port()
    async with proxy(folder.parent / "home", f'[mcp.servers.x]\nurl = "http://127.0.0.1:{port}/mcp"\n') as world:
        for life in ("first", "second"):
            with everything_over_http(port) as url:
                await _listening(url)
                assert life in json.dumps(await world.call("x", "echo", message=life))


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
@pytest.mark.parametrize("server", ["filesystem", "git"])
async def test_the_official_client_works_through_the_gateway(mode: str, server: str, folder: Path):
    tool, arguments = (
        ("read_text_file", {"path": str(folder / "big.txt")})
        if server == "filesystem"
        else ("git_show", {"repo_path": str(folder), "revision": "HEAD"})
    )
    async with behind(server, folder) as world:
        url = f"http://127.0.0.1:{world.port}/api/mcp-gateway/x/mcp"
        async with Client(url, mode=mode, read_timeout_seconds=60) as client:
            names = [t.name for t in (await client.list_tools()).tools]
            shown = await client.call_tool(tool, arguments)
            marker = read_mask(shown.content[0].text)
            assert marker is not None
            whole = await client.call_tool("recover_text", {"id": marker.mask_id})

    assert "recover_text" in names
    assert "line 3000 of a file" in whole.content[0].text
    assert "line 3000 of a file" not in shown.content[0].text
