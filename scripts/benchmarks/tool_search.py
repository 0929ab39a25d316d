"""What the tools of many MCP servers cost, and whether the search finds the right one.

In `tools/list`, with and without the gateway's one endpoint; in a chat request, with and without tools on demand.

It installs ten public MCP servers (npm and PyPI, about 300 MB) into a folder of its own. The requests in
tool_requests.tsv were written before the ranking and quote no description; a line names every tool that would do.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kimi_proxy.addons.tools_on_demand import deferral
from kimi_proxy.addons.tools_on_demand.deferral import Choice
from kimi_proxy.assembly.tools import running_directory
from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.tool_search import rank_tools
from kimi_proxy.features.tool_words import ListedTool
from kimi_proxy.services.gateway.tool_directory import search_tools

FOLDER = Path(os.environ.get("KIMI_PROXY_BENCH_SERVERS", Path(tempfile.gettempdir()) / "kimi-proxy-mcp-servers"))
NPM = (
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "fast-filesystem-mcp@3.5.2",
    "@playwright/mcp",
    "chrome-devtools-mcp",
    "@notionhq/notion-mcp-server",
    "mcp-json@1.0.0",
)
PYPI = ("mcp-server-git", "mcp-server-time")
HITS = (1, 3, 5, 8)
QUERIES = ("create an issue", "take a screenshot of the page", "show the commits of a branch", "read a file")
REQUESTS = Path(__file__).with_name("tool_requests.tsv")


def main() -> None:
    _install()
    asyncio.run(_measure())


def _install() -> None:
    if (FOLDER / "installed").exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"installing {len(NPM) + len(PYPI)} public MCP servers into {FOLDER} …", file=sys.stderr)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(FOLDER), *NPM], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER / "venv")], check=True)
    subprocess.run([str(FOLDER / "venv/bin/pip"), "install", "--quiet", *PYPI], check=True)
    subprocess.run(["git", "init", "--quiet", str(FOLDER / "repo")], check=True)
    (FOLDER / "installed").touch()


def _settings() -> str:
    npm, python, repo = FOLDER / "node_modules/.bin", FOLDER / "venv/bin", FOLDER / "repo"
    commands = {
        "filesystem": [str(npm / "mcp-server-filesystem"), str(repo)],
        "memory": [str(npm / "mcp-server-memory")],
        "fast-filesystem": [str(npm / "fast-filesystem-mcp")],
        "playwright": [str(npm / "playwright-mcp"), "--headless"],
        "chrome": [str(npm / "chrome-devtools-mcp"), "--headless"],
        "notion": [str(npm / "notion-mcp-server")],
        "json": [str(npm / "mcp-json")],
        "git": [str(python / "mcp-server-git"), "--repository", str(repo)],
        "time": [str(python / "mcp-server-time"), "--local-timezone", "UTC"],
    }
    tables = (
        f"[mcp.servers.{name}]\ncommand = {json.dumps(command[0])}\nargs = {json.dumps(command[1:])}\n"
        for name, command in commands.items()
    )
    return "".join(tables)


async def _measure() -> None:
    with tempfile.TemporaryDirectory() as home:
        async with running_directory(parse(_settings(), {}, Path(home)), os.environ) as (directory, who):
            tools = await directory.list_tools(who or LOCAL)
            for name, problem in directory.problems().items():
                print(f"{name} is left out: {problem}", file=sys.stderr)
            few: list[JsonValue] = [
                {"name": tool.name, "description": tool.description, "inputSchema": tool.schema}
                for tool in search_tools(directory).values()
            ]
    _print_tokens(tools, few)
    _print_hits(tools)


def _print_tokens(tools: list[ListedTool], few: list[JsonValue]) -> None:
    servers = dict.fromkeys(tool.server for tool in tools)
    print("\n| server | tools | tokens of its tools/list |\n|---|--:|--:|")
    for server in servers:
        own: list[JsonObject] = [tool.listing for tool in tools if tool.server == server]
        print(f"| {server} | {len(own)} | {_tokens(own)} |")
    print(f"| all of them | {len(tools)} | {_tokens([tool.listing for tool in tools])} |")
    print(f"| one endpoint | {len(few)} | {_tokens(few)} |")
    _print_requests(tools)


def _print_requests(tools: list[ListedTool]) -> None:
    print("\n| `tools` of a chat request | all described | on demand | a search of 8 hits, once |\n|---|--:|--:|--:|")
    for wire in Wire:
        offered: list[JsonValue] = [
            wire.format.new_tool(f"mcp__{tool.server}__{tool.own_name}", tool.description, tool.schema)
            for tool in tools
        ]
        listed: JsonValue = [{"functionDeclarations": offered}] if wire is Wire.GEMINI else offered
        came = Request(wire, json.dumps({"model": "m", "tools": listed, "messages": []}, ensure_ascii=False).encode())
        names = deferral.choose(deferral.client_tools(came, tokens.count), Choice(is_automatic=True), tokens.count)
        left, deferred = deferral.leave_out(came, names)
        found = (
            [deferred.answer(deferral.SEARCH, json.dumps({"query": words})) for words in QUERIES] if deferred else []
        )
        hits = sum(tokens.count(each) for each in found) // len(QUERIES)
        sizes = (tokens.count(bytes(each.members["tools"]).decode()) for each in (came, left))
        print(f"| {wire.format.name} | {' | '.join(map(str, sizes))} | {hits} |")


def _tokens(value: JsonValue) -> int:
    return tokens.count(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _print_hits(tools: list[ListedTool]) -> None:
    requests = [line.split("\t") for line in REQUESTS.read_text("utf-8").splitlines()]
    places = []
    for request, wanted in requests:
        found = [f"{tool.server}/{tool.own_name}" for tool in rank_tools(tools, request, HITS[-1])]
        places.append(next((at for at, name in enumerate(found) if name in wanted.split()), HITS[-1]))
        if places[-1] == HITS[-1]:
            print(f"not found: {request}", file=sys.stderr)
    shares = " · ".join(f"within {most}: {sum(at < most for at in places) / len(places):.1%}" for most in HITS)
    print(f"\nRight tool among {len(tools)} for {len(requests)} requests: {shares}")
