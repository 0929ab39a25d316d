"""One set of tools for all MCP servers behind the gateway: search, describe, call; or all of them side by side."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic import JsonValue as AnyJson

from kimi_proxy.core import json
from kimi_proxy.core.aside import aside
from kimi_proxy.core.caller import ANONYMOUS, Caller
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, ParseError, UpstreamTimeout, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features import recovery
from kimi_proxy.features.recovery import Recover
from kimi_proxy.features.tool import AnyTool, Integer, Tool, ToolAnswer
from kimi_proxy.features.tool_search import MAX_HITS, describe_tool, rank_tools, thin_schema
from kimi_proxy.features.tool_words import ListedTool, ToolWords
from kimi_proxy.services.gateway import Gateway

FRESH_S = 300.0  # how long a tool list is cached
RETRY_S = 15.0  # and from a server that did not answer
LIST_S = 20.0  # for a server to start and to list its tools
PATIENCE_S = 5.0  # so long a search waits for a server that was never listed
STILL_LISTING = "it has not listed its tools yet: search again in some seconds"
MAX_PAGES = 50
MAX_TOOLS, MAX_LIST_BYTES = 1000, 1024**2  # of a server
RANKED_AT_ONCE = 1000  # tools whose words are known: 3 ms
COMPARED_AT_ONCE, MAX_NAME_CHARS = 200, 200

# Of the endpoint itself; a server's tool of such a name is called with its server's name only.
OWN_NAMES = frozenset(
    {"search_tools", "describe_tool", "call_read_tool", "call_write_tool", recovery.NAME, recovery.SPARE_NAME}
)
_OURS = tuple(recovery.describe_tool(name) for name in (recovery.NAME, recovery.SPARE_NAME))


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools of one server as last listed; `problem` says why there are none, or not all."""

    tools: tuple[ListedTool, ...]
    words: Sequence[ToolWords]  # of each tool, by which it is found
    at: float
    problem: KimiProxyError | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A question for the tools of a server that is not answered yet."""

    task: asyncio.Task[object]
    since: float


class ToolDirectory:
    """Knows the tools of every server that the settings name, and calls them through the gateway.

    They are listed in the background: a search answers from what is known, and waits only for servers that have just
    been asked for the first time.
    """

    def __init__(self, gateway: Gateway, now: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._now = now
        self._known: dict[str, ServerTools] = {}
        self._listings: dict[str, Listing] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        """Return the servers that are switched on and that the settings name or we run."""
        servers = self._gateway.servers
        return tuple(name for name in servers.names if name in self._gateway.named or name in servers.run)

    async def list_tools(self, who: Caller, patience_s: float = PATIENCE_S) -> Sequence[ListedTool]:
        """Return the known tools of all servers, in the order of the settings.

        A server that was never listed is waited for until so many seconds after it was first asked.
        """
        self._refresh(who)
        await self._wait([name for name in self._listings if name not in self._known], patience_s)
        return [tool for tool, _ in self._tools()]

    async def search(self, who: Caller, query: str, limit: int) -> tuple[Sequence[ListedTool], int]:
        """Return the tools that fit a query best, and the number of those that were searched."""
        await self.list_tools(who)
        known = self._tools()
        tools = [tool for tool, _ in known]
        words = [each for _, each in known]
        return await aside(len(known) <= RANKED_AT_ONCE, rank_tools, tools, query, limit, words), len(known)

    def _tools(self) -> list[tuple[ListedTool, ToolWords]]:
        listed = (self._known[name] for name in self.servers if name in self._known)
        every = (pair for one in listed for pair in zip(one.tools, one.words, strict=True))
        return [(tool, words) for tool, words in every if self._owner(tool.name) == tool.server]

    def _refresh(self, who: Caller) -> None:
        """List the tools again, in the background, of each server whose list is old."""
        for name in self.servers:
            if not self._is_fresh(name) and name not in self._listings:
                # What a person's own process lists may be about them; everybody sees this list.
                asking = ANONYMOUS if self._gateway.clients.person_of(name, who) else who
                task = self._gateway.run_in_background(self._list(asking, name))
                self._listings[name] = Listing(task, self._now())

    async def _wait(self, names: Sequence[str], patience_s: float) -> None:
        waits = {name: self._listings[name].since + patience_s - self._now() for name in names}
        tasks = {self._listings[name].task for name, left_s in waits.items() if left_s > 0}
        if tasks:
            await asyncio.wait(tasks, timeout=max(waits.values()))

    async def _list(self, who: Caller, name: str) -> None:
        try:
            self._known[name] = await self._ask(who, name)
        finally:
            del self._listings[name]

    def _owner(self, name: str) -> str | None:
        """Return the server whose name and two underscores a tool's full name begins with, even if it is away.

        What begins so belongs to that server alone: another one may offer a tool of that very name to get its calls.
        """
        owners = (server for server in self.servers if name.startswith(f"{server}__"))
        return max(owners, key=len, default=None)

    def problems(self, who: Caller) -> dict[str, str]:
        """Return why tools are missing, by the servers that have them, in words for this person."""
        known = {name: self._known[name].problem for name in self.servers if name in self._known}
        late = {name: STILL_LISTING for name in self._listings if name not in self._known}
        return {name: problem.explain(who) for name, problem in known.items() if problem is not None} | late

    async def find(self, who: Caller, name: str) -> ListedTool:
        """Return the tool of a name, with its server's name before it or, if only one has it, without."""
        owner = self._owner(name)
        if owner is not None and owner not in self._known:
            self._refresh(who)
            await self._wait([owner] if owner in self._listings else [], LIST_S)
        tools = await self.list_tools(who)
        exact = [tool for tool in tools if tool.name == name]
        if not exact and "__" not in name and name not in OWN_NAMES:
            exact = [tool for tool in tools if tool.own_name == name]
        if len(exact) == 1:
            return exact[0]
        near = [tool.name for tool in exact] or await self._nearest(name[:MAX_NAME_CHARS], tools)
        hint = f"the nearest are {', '.join(near)}" if near else "call search_tools to find one"
        raise InvalidParams(
            "name", f"{'several servers have' if exact else 'no server has'} a tool {name[:80]!r}: {hint}"
        )

    async def _nearest(self, name: str, tools: Sequence[ListedTool]) -> list[str]:
        names = [tool.name[:MAX_NAME_CHARS] for tool in tools]
        return await aside(len(names) <= COMPARED_AT_ONCE, get_close_matches, name, names, 3, 0.5)

    async def call(self, who: Caller, tool: ListedTool, arguments: JsonObject) -> ToolAnswer:
        """Return the response of the tool's server, shortened as at that server's own endpoint."""
        params: JsonObject = {"name": tool.own_name, "arguments": arguments}
        message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        match await self._gateway.answer(who, tool.server, message):
            case {"result": dict(result)}:
                return ToolAnswer("", result=result)
            case {"error": {"message": str(problem)}}:
                return ToolAnswer(f"{tool.server}: {problem}", is_error=True)
            case _:
                return ToolAnswer(f"{tool.server} did not answer as MCP asks", is_error=True)

    async def recover(self, who: Caller, asked: Recover) -> ToolAnswer:
        """Return the original text behind a marker in an answer of any server."""
        return ToolAnswer((await self._gateway.recovery.read(who, asked.id, recovery.selection_of(asked))).text)

    def _is_fresh(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and self._now() - known.at < (FRESH_S if known.tools or not known.problem else RETRY_S)

    async def _ask(self, who: Caller, server: str) -> ServerTools:
        tools: list[ListedTool] = []
        problem: KimiProxyError | None = None
        try:
            async with asyncio.timeout(LIST_S):
                problem = await self._read_pages(who, server, tools)
        except TimeoutError:
            tools = []
            problem = UpstreamTimeout(f"it has not listed its tools within {LIST_S:g} s")
        except KimiProxyError as e:
            tools = []
            problem = e
        return ServerTools(tuple(tools), await self._gateway.tool_words(tools), self._now(), problem)

    async def _read_pages(self, who: Caller, server: str, tools: list[ListedTool]) -> KimiProxyError | None:
        """Add the tools of a server; return why they are not all of its tools."""
        cursor: JsonValue = None
        room = MAX_LIST_BYTES
        for page in range(1, MAX_PAGES + 1):
            params: JsonObject = {"cursor": cursor} if cursor else {}
            message: JsonObject = {"jsonrpc": "2.0", "id": page, "method": "tools/list", "params": params}
            answer = await self._gateway.answer(who, server, message)
            result = answer.get("result") if answer is not None else None
            listed = result.get("tools") if isinstance(result, Mapping) else None
            # The gateway adds its own recovery tool to each list: here one serves all.
            for each in listed if isinstance(listed, list) else ():
                if not isinstance(each, dict) or each in _OURS:
                    continue
                room -= len(json.encode(each))
                if room < 0 or len(tools) == MAX_TOOLS:
                    return UpstreamUnreadable(
                        f"only its first {len(tools)} tools are offered: of a server these are at most {MAX_TOOLS} "
                        f"and {MAX_LIST_BYTES // 1024**2} MB; choose some by `tools` in [mcp.servers.{server}]"
                    )
                tools.append(ListedTool(server, each))
            cursor = result.get("nextCursor") if isinstance(result, Mapping) else None
            if not cursor:
                return None
        return UpstreamUnreadable(f"only the tools of its first {MAX_PAGES} pages are offered")


class SearchTools(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: str = Field(min_length=1, max_length=1000)
    limit: Integer = Field(default=MAX_HITS, ge=1, le=20)


class DescribeTool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str


def _read_object(value: object) -> object:
    """Return the object that a model wrote as a JSON string; some do for arguments inside arguments."""
    if not isinstance(value, str):
        return value
    try:
        return json.decode(value.encode())
    except ParseError:
        return value


class CallTool(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    arguments: Annotated[dict[str, AnyJson], BeforeValidator(_read_object)] = Field(default_factory=dict)


_NAME: JsonObject = {"type": "string", "description": "As search_tools names it: SERVER__TOOL"}
_CALL: JsonObject = {
    "type": "object",
    "properties": {
        "name": _NAME,
        "arguments": {"type": "object", "description": "By the inputSchema of the tool"},
    },
    "required": ["name"],
    "additionalProperties": False,
}
_SEARCH: JsonObject = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What the tool should do, in a few words"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 20},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_DESCRIBE: JsonObject = {
    "type": "object",
    "properties": {"name": _NAME},
    "required": ["name"],
    "additionalProperties": False,
}


def search_tools(directory: ToolDirectory) -> dict[str, AnyTool]:
    """Return the few tools by which all others are found and called."""

    async def search(who: Caller, asked: SearchTools) -> ToolAnswer:
        found, searched = await directory.search(who, asked.query, asked.limit)
        hits: list[JsonValue] = [_describe(tool) for tool in found]
        answer: JsonObject = {"tools": hits, "searched": searched}
        if not hits:
            answer["servers"] = list(directory.servers)
        if problems := directory.problems(who):
            answer["unavailable"] = dict(problems)
        return ToolAnswer(json.encode(answer).decode())

    async def describe(who: Caller, asked: DescribeTool) -> ToolAnswer:
        tool = await directory.find(who, asked.name)
        return ToolAnswer(json.encode({**tool.listing, "name": tool.name}).decode())

    async def call_read(who: Caller, asked: CallTool) -> ToolAnswer:
        tool = await directory.find(who, asked.name)
        if not tool.is_read_only:
            raise InvalidParams("name", f"{tool.name} is not marked as read-only: use call_write_tool")
        return await directory.call(who, tool, {**asked.arguments})

    async def call_write(who: Caller, asked: CallTool) -> ToolAnswer:
        return await directory.call(who, await directory.find(who, asked.name), {**asked.arguments})

    tools: tuple[AnyTool, ...] = (
        Tool(
            "search_tools",
            f"Find tools by what they do. Returns up to {MAX_HITS} tools of all connected servers with their "
            "inputSchema. Call one with call_read_tool if read_only is true, else with call_write_tool.",
            _SEARCH,
            SearchTools,
            search,
            title="Search tools",
        ),
        Tool(
            "describe_tool",
            "Return the full description and schema of one tool.",
            _DESCRIBE,
            DescribeTool,
            describe,
            title="Describe a tool",
        ),
        Tool(
            "call_read_tool",
            "Call a tool that changes nothing (read_only is true in search_tools).",
            _CALL,
            CallTool,
            call_read,
            title="Call a read-only tool",
        ),
        Tool(
            "call_write_tool",
            "Call a tool that may change files, data or services.",
            _CALL,
            CallTool,
            call_write,
            title="Call a tool that changes things",
            read_only=False,
        ),
        _recovery_tool(directory),
    )
    return {tool.name: tool for tool in tools}


async def every_tool(directory: ToolDirectory, who: Caller) -> dict[str, AnyTool]:
    """Return the tools of all servers side by side, each under its server's name and its own."""
    tools: list[AnyTool] = [UpstreamTool(directory, tool) for tool in await directory.list_tools(who, LIST_S)]
    return {tool.name: tool for tool in (*tools, _recovery_tool(directory))}


@dataclass(frozen=True, slots=True)
class UpstreamTool:
    """A tool of a server behind the gateway, as if it were one of ours."""

    directory: ToolDirectory
    listed: ListedTool

    @property
    def name(self) -> str:
        return self.listed.name

    @property
    def description(self) -> str:
        return self.listed.description

    @property
    def schema(self) -> JsonObject:
        return _thin(self.listed)

    @property
    def title(self) -> str:
        return str(self.listed.listing.get("title", ""))

    @property
    def read_only(self) -> bool:
        return self.listed.is_read_only

    async def call(self, who: Caller, arguments: Mapping[str, JsonValue]) -> ToolAnswer:
        return await self.directory.call(who, self.listed, dict(arguments))


def _recovery_tool(directory: ToolDirectory) -> Tool[Recover]:
    return Tool(
        recovery.NAME, recovery.DESCRIPTION, recovery.SCHEMA, Recover, directory.recover, title="Recover cut text"
    )


def _describe(tool: ListedTool) -> JsonObject:
    return {**describe_tool(tool), "read_only": tool.is_read_only}


def _thin(tool: ListedTool) -> JsonObject:
    thinned = thin_schema(tool.schema)
    return thinned if isinstance(thinned, dict) else tool.schema
