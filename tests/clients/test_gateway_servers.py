"""Published MCP servers behind the gateway, over stdio and over HTTP."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.clients import sdks
from tests.support.api.proxy_world import proxy
from tests.support.browser.product import Product, started
from tests.support.clients.servers import INSTALL_S, direct, git_server, node_program
from tests.support.deep import too
from tests.support.processes import until

from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import read_mask

pytestmark = pytest.mark.timeout(INSTALL_S + 600)

TEXT = "".join(f"line {i} of a file that is much too long to read, é\u2028\r\n" for i in range(6000))
LIST: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as outside:  # not among the folders of the other tests: one server reads below /tmp only
        folder = Path(outside, "folder")
        folder.mkdir()
        (folder / "big.txt").write_bytes(TEXT.encode())
        Path(outside, "secret.txt").write_text("secret")
        (folder / "link.txt").symlink_to(Path(outside, "secret.txt"))
        yield folder


def command(server: str, folder: Path) -> list[str]:
    match server:
        case "filesystem":
            return [node_program("mcp-server-filesystem"), str(folder)]
        case "fast-filesystem" | "rooted":
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


@dataclass(frozen=True)
class Gateway:
    """Every server behind one gateway; a program is started by the first call that needs it."""

    product: Product
    folder: Path

    def rpc(self, server: str, message: JsonObject) -> JsonObject:
        command(server, self.folder)  # skips the test where the server is not installed
        answer: JsonObject = self.product.ask("POST", f"/api/mcp-gateway/{server}/rpc", message).json()
        return answer

    def call(self, server: str, name: str, **arguments: JsonValue) -> JsonValue:
        return self.rpc(server, call(name, **arguments))["result"]

    def mended(self, value: JsonValue, server: str) -> JsonValue:
        """`value` with every masked string recovered; a JSON text is mended inside."""
        if isinstance(value, dict):
            return {key: self.mended(item, server) for key, item in value.items()}
        if isinstance(value, list):
            return [self.mended(item, server) for item in value]
        marker = read_mask(value) if isinstance(value, str) else None
        if marker is None or not isinstance(value, str):
            return value
        if value.startswith("{"):
            return json.dumps(self.mended(json.loads(value), server), indent=2, ensure_ascii=False)
        return text_of(self.call(server, "recover_text", id=marker.mask_id))


def text_of(result: JsonValue) -> str:
    match result:
        case {"content": [{"text": str(text)}, *_]}:
            return text
    raise AssertionError(result)


def call(name: str, **arguments: JsonValue) -> JsonObject:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


SERVERS = ["filesystem", "fast-filesystem", "everything", "memory", "sequential-thinking", "git"]
ALWAYS = ("filesystem", "fast-filesystem", "everything", "git")
READS = {
    "filesystem": ("read_text_file", {"path": "{folder}/big.txt"}),
    "fast-filesystem": ("fast_read_file", {"path": "{folder}/big.txt"}),
    "git": ("git_show", {"repo_path": "{folder}", "revision": "HEAD"}),
}


def reading(server: str, folder: Path) -> JsonObject:
    """The call that reads the long file."""
    tool, arguments = READS[server]
    return call(tool, **{key: value.format(folder=folder) for key, value in arguments.items()})


@pytest.fixture(scope="module")
def gateway(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    toml = ""
    for server in (*SERVERS, "rooted"):
        with suppress(pytest.skip.Exception):
            program, *args = command(server, folder)
            toml += f"[mcp.servers.{server}]\ncommand = {json.dumps(program)}\nargs = {json.dumps(args)}\n"
            toml += "start_timeout_s = 60\n"
            toml += f"root = {json.dumps(str(folder))}\n" if server == "rooted" else ""
    with started(tmp_path_factory.mktemp("gateway"), toml) as product:
        yield Gateway(product, folder)


@cache
def alone(server: str, folder: Path) -> tuple[JsonValue, JsonValue]:
    """What a server lists, and what it gives to read, when nothing stands between."""
    asked = [LIST, reading(server, folder)] if server in READS else [LIST]
    answers = [answer["result"] for answer in asyncio.run(direct(command(server, folder), *asked))]
    return answers[0], answers[-1]


@pytest.mark.parametrize("server", [server if server in ALWAYS else too(server) for server in SERVERS])
def test_the_tools_are_those_of_the_server_and_one_more(server: str, gateway: Gateway):
    expected, _ = alone(server, gateway.folder)
    listed = gateway.rpc(server, LIST)["result"]

    assert isinstance(listed, dict) and isinstance(listed["tools"], list)
    *tools, ours = listed["tools"]
    assert ours["name"] == "recover_text"
    assert json.dumps({**listed, "tools": tools}) == json.dumps(expected)


@pytest.mark.parametrize("server", READS)
def test_a_long_read_comes_masked_and_is_recovered_byte_for_byte(server: str, gateway: Gateway):
    _, expected = alone(server, gateway.folder)
    shown = gateway.rpc(server, reading(server, gateway.folder))["result"]

    assert len(json.dumps(shown)) < 15_000 < 300_000 < len(json.dumps(expected))
    assert gateway.mended(shown, server) == expected


@pytest.mark.parametrize("server", ["filesystem", "fast-filesystem"])
def test_what_the_agent_recovers_is_the_file(server: str, gateway: Gateway):
    marker = read_mask(json.dumps(gateway.rpc(server, reading(server, gateway.folder))["result"]))
    assert marker is not None
    whole = text_of(gateway.call(server, "recover_text", id=marker.mask_id))
    part = gateway.product.get(f"/api/mask/{marker.mask_id}?lines=3000-3001")

    assert whole.encode() == (gateway.folder / "big.txt").read_bytes()
    assert part["text"] == "\n".join(TEXT.split("\n")[2999:3001])


def test_a_root_holds_where_the_server_itself_lets_go(gateway: Gateway):
    folder = gateway.folder
    for path in (folder / "link.txt", folder / ".." / "secret.txt", folder.parent / "secret.txt"):
        refused = gateway.rpc("rooted", call("fast_read_file", path=str(path)))
        assert "is outside the workspace" in json.dumps(refused["error"])
    assert "big.txt" in json.dumps(gateway.call("rooted", "fast_list_directory", path=str(folder)))


def test_a_masked_read_cannot_be_written_back(gateway: Gateway):
    path = gateway.folder / "big.txt"
    shown = text_of(gateway.call("filesystem", "read_text_file", path=str(path)))
    refused = gateway.rpc("filesystem", call("write_file", path=str(path), content=shown))

    assert refused["error"]["code"] == -32602  # type: ignore[index,call-overload]
    assert path.read_bytes() == TEXT.encode()


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


async def test_a_server_over_http_is_the_same_behind_the_gateway(folder: Path, tmp_path: Path):
    (expected,) = await direct(command("everything", folder), LIST)
    with everything_over_http(free_port()) as url:
        await _listening(url)
        async with proxy(tmp_path, f'[mcp.servers.x]\nurl = "{url}"\n') as world:
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


async def test_a_server_over_http_that_restarts_is_met_anew(tmp_path: Path):
    port = free_port()
    async with proxy(tmp_path, f'[mcp.servers.x]\nurl = "http://127.0.0.1:{port}/mcp"\n') as world:
        for life in ("first", "second"):
            with everything_over_http(port) as url:
                await _listening(url)
                assert life in json.dumps(await world.call("x", "echo", message=life))


@pytest.mark.parametrize("mode", ["auto", too("legacy"), too("2026-07-28")])
@pytest.mark.parametrize("server", ["filesystem", too("git")])
async def test_the_official_client_works_through_the_gateway(mode: str, server: str, gateway: Gateway):
    asked = reading(server, gateway.folder)["params"]
    url = f"{gateway.product.address}/api/mcp-gateway/{server}/mcp"
    command(server, gateway.folder)
    async with sdks.mcp.Client(url, mode=mode, read_timeout_seconds=60) as client:
        names = [t.name for t in (await client.list_tools()).tools]
        shown = await client.call_tool(asked["name"], asked["arguments"])  # type: ignore[index,call-overload]
        marker = read_mask(shown.content[0].text)
        assert marker is not None
        whole = await client.call_tool("recover_text", {"id": marker.mask_id})

    assert "recover_text" in names
    assert "line 3000 of a file" in whole.content[0].text
    assert "line 3000 of a file" not in shown.content[0].text
