"""Every way to read an original back gives the same bytes for the same lines, however the original is kept."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.support.conversations import Assistant, Item, Result, User
from tests.support.conversations import Call as Asked
from tests.support.conversations import body as request_body
from tests.support.evil import Heard, Line, evil, http
from tests.support.model import Call, Says
from tests.support.model import body as answer_body
from tests.support.read_back import keep_in_parts

from kimi_proxy.assembly.apps import proxy_app, pruner_app
from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config import parse as parse_config
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.prune import Options, Question
from kimi_proxy.services.chat.requests import ChatRequest
from kimi_proxy.services.originals import Keeper, PrintedText

Range = tuple[int, int]

WHOLE = "one\ntwo \r\n\n\x0cfour\nfive é😀\n"
# The third part begins inside of line 15.
PARTS = (b"line 11\nline 12\n", b"line 13\nline 14\nline ", b"15\nline 16\n")
ORDERS = json.dumps([{"id": n, "state": "ok" if n != 300 else "failed: card declined"} for n in range(600)])
OPTIONS = Options(0.9, 1, 60_000, annotate_lines=False, include_markers=True)
UNKNOWN = "prn_zzzzzzzzzzzzzzzz"
GATEWAY = '[mcp.servers.s]\nurl = "http://127.0.0.1:1/rpc"\n'


@dataclass(frozen=True)
class Kept:
    """An original: its text, what its numbers count, and the first of them."""

    id: str
    text: str
    rows: Sequence[str]
    first: int = 1
    seam: str = "\n"

    def lines(self, ranges: Sequence[Range]) -> str:
        found = (self.seam.join(self.rows[start - self.first : end - self.first + 1]) for start, end in ranges)
        return self.seam.join(found)


@dataclass
class World:
    runtime: Runtime
    proxy: httpx.AsyncClient
    pruner: httpx.AsyncClient
    cli: Cli
    model: "Model"
    kept: dict[str, Kept] = field(default_factory=dict)
    expired: str = ""


class Model:
    """Calls our tool as it is told to, and remembers what it got."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.got = ""

    async def __call__(self, heard: Heard, line: Line) -> None:
        if self.calls:
            await line.send(http(answer_body(Wire.CHAT, Says("", (self.calls.pop(),)))))
        else:
            self.got = parse(heard.body, Wire.CHAT).messages[-1].parts[-1].text
            await line.send(http(answer_body(Wire.CHAT, Says("So."))))


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    home, here = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("here")
    env = {"PATH": os.environ["PATH"], "HOME": str(here), "KIMI_PROXY_HOME": str(home)}
    model = Model()
    async with (
        evil(model) as provider,
        running(parse_config(f"{provider.toml()}{GATEWAY}", {}, home), thread_max_chars=10**9) as runtime,
        _client(proxy_app(runtime)) as proxy,
        _client(pruner_app(runtime)) as pruner,
    ):
        made = World(runtime, proxy, pruner, Cli(here, env), model)
        await _fill(made)
        yield made


def _client(app: object) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app)  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", timeout=60)


async def _fill(world: World) -> None:
    originals = world.runtime.store.originals
    keeper = Keeper(originals)
    whole = await keeper.keep_text(LOCAL, WHOLE.encode(), PrintedText("contents"))
    world.kept["whole"] = Kept(whole, WHOLE, WHOLE.split("\n"))

    marker = await keep_in_parts(originals, PARTS, 11)
    output = b"".join(PARTS).decode()
    world.kept["in parts"] = Kept(marker.prune_id, output, output.split("\n")[:-1], first=11)

    question = Question(ORDERS, "which order failed?", "code", OPTIONS)
    answer = await world.runtime.pruner.prune(LOCAL, question)
    starts = answer.pruned.part_starts
    assert answer.prune_id and starts
    rows = [ORDERS[start:end] for start, end in zip(starts, (*starts[1:], len(ORDERS)), strict=True)]
    world.kept["one long line"] = Kept(answer.prune_id, ORDERS, rows, seam="")

    world.expired = await keeper.keep_text(LOCAL, b"gone", PrintedText("contents"))
    await originals.delete(LOCAL, [world.expired])


# The ways in. Each returns the text, or the words of a refusal.


def _arguments(id: str, ranges: Sequence[Range]) -> JsonObject:
    listed: list[JsonValue] = [{"start_line": start, "end_line": end} for start, end in ranges]
    return {"prune_id": id} | ({"ranges": listed} if ranges else {})


def _message(id: str, ranges: Sequence[Range]) -> JsonObject:
    params: JsonObject = {"name": "recover_text", "arguments": _arguments(id, ranges)}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def _raw_text(response: JsonObject) -> str:
    """What the pruner's own tool answers."""
    match response:
        case {"result": {"structuredContent": {"raw_text": str(text)}}}:
            return text
        case {"error": error} | {"result": {"content": [{"text": error}]}}:
            return str(error)
    raise AssertionError(response)


def _text(response: JsonObject) -> str:
    """What the gateway's tool answers."""
    match response:
        case {"result": {"content": [{"text": text}]}} | {"error": text}:
            return str(text)
    raise AssertionError(response)


async def by_rpc(world: World, id: str, ranges: Sequence[Range]) -> str:
    return _raw_text((await world.pruner.post("/rpc", json=_message(id, ranges))).json())


async def by_mcp(world: World, id: str, ranges: Sequence[Range]) -> str:
    return _raw_text((await world.pruner.post("/mcp", json=_message(id, ranges))).json())


async def by_stdio(world: World, id: str, ranges: Sequence[Range]) -> str:
    done = world.cli("pruner", "--stdio", stdin=json.dumps(_message(id, ranges)).encode() + b"\n")
    return _raw_text(json.loads(done.stdout))


async def by_command(world: World, id: str, ranges: Sequence[Range]) -> str:
    wanted = ",".join(f"{start}-{end}" for start, end in ranges)
    done = world.cli("recover", id, *([wanted] if wanted else []), "--json")
    return str(json.loads(done.stdout)["raw_text"]) if done.returncode == 0 else done.stderr.decode()


async def by_get(world: World, id: str, ranges: Sequence[Range]) -> str:
    wanted = ",".join(f"{start}-{end}" for start, end in ranges)
    response = await world.proxy.get(f"/api/mask/{id}", params={"lines": wanted} if wanted else {})
    return str(response.json()["text"] if response.status_code == 200 else response.json())


async def by_gateway(world: World, id: str, ranges: Sequence[Range]) -> str:
    return _text((await world.proxy.post("/api/mcp-gateway/s/rpc", json=_message(id, ranges))).json())


async def by_tool_directory(world: World, id: str, ranges: Sequence[Range]) -> str:
    return _text((await world.proxy.post("/api/mcp-gateway/rpc", json=_message(id, ranges))).json())


async def in_chat(world: World, id: str, ranges: Sequence[Range]) -> str:
    marker = f"⟦PRUNÉ: prune_id={id} lignes 1-2 (2) raison=x⟧"
    items: list[Item] = [User(f"{id} {ranges}"), Assistant("", (Asked("c1"),)), Result("c1", marker)]
    world.model.calls = [Call("own_1", "recover_text", _arguments(id, ranges))]
    async with world.runtime.chat.answer(ChatRequest(LOCAL, Wire.CHAT, request_body(Wire.CHAT, items))) as answer:
        assert answer.status == 200
        _ = [piece async for piece in answer.rest] if answer.rest else []
    return world.model.got


async def in_list_of_cuts(world: World, id: str, ranges: Sequence[Range]) -> str:
    """It shows lines from one on: ranges are asked for one by one."""
    found: list[str] = []
    seam = "\n"
    for start, end in ranges or [(1, 10_000)]:
        query = {"from": start, "lines": min(5_000, end - start + 1)}
        response = await world.proxy.get(f"/api/cuts/{id}", params=query)
        told = response.json()
        if response.status_code != 200:
            return str(told)
        seam = "" if told["numbering"] == "parts" else "\n"
        by_line = told["by"] == "lines"
        found.append(seam.join(line["text"] for line in told["lines"]) if by_line else told["original"])
    return seam.join(found)


Way = Callable[[World, str, Sequence[Range]], Awaitable[str]]
WAYS: dict[str, Way] = {
    "rpc": by_rpc,
    "mcp": by_mcp,
    "stdio": by_stdio,
    "command": by_command,
    "get": by_get,
    "gateway": by_gateway,
    "tool directory": by_tool_directory,
    "chat": in_chat,
    "list of cuts": in_list_of_cuts,
}
KINDS = ("whole", "in parts", "one long line")
# Relative to the first line. An end beyond the last line means the last line.
ASKED: dict[str, list[Range]] = {
    "a range": [(1, 3)],
    "one line": [(4, 4)],
    "several ranges": [(4, 5), (0, 1), (1, 4)],
    "past the end": [(2, 5_000)],
}

ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
kinds = pytest.mark.parametrize("kind", KINDS)


@ways
@kinds
async def test_without_a_range_everything_comes_back(world: World, kind: str, way: Way) -> None:
    kept = world.kept[kind]
    found = await way(world, kept.id, [])

    # The list of cuts shows lines, which end before the final newline of an output in parts.
    assert found in (kept.text, kept.lines([(kept.first, 10_000)])) if way is in_list_of_cuts else found == kept.text


@ways
@kinds
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
async def test_lines_are_the_same_by_every_way(world: World, kind: str, asked: list[Range], way: Way) -> None:
    kept = world.kept[kind]
    ranges = [(kept.first + start, kept.first + end) for start, end in asked]

    assert await way(world, kept.id, ranges) == kept.lines(ranges)


@ways
@kinds
async def test_a_range_without_any_line_is_refused(world: World, kind: str, way: Way) -> None:
    kept = world.kept[kind]
    beyond = kept.first + len(kept.rows)
    refused = await way(world, kept.id, [(beyond, beyond + 1)])

    assert "beyond the last line" in refused or "is not stored here" in refused


@ways
async def test_an_id_that_was_never_given_out_is_unknown(world: World, way: Way) -> None:
    assert "unknown id" in await way(world, UNKNOWN, [(1, 2)])


@ways
async def test_an_id_whose_original_is_gone_has_expired(world: World, way: Way) -> None:
    assert "has expired" in await way(world, world.expired, [(1, 2)])
