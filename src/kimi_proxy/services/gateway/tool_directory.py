"""One set of tools for all MCP servers behind the gateway: search, describe, call; or all of them side by side."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic import JsonValue as AnyJson

from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, ParseError, UpstreamTimeout
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features import recovery
from kimi_proxy.features.recovery import Recover
from kimi_proxy.features.tool import AnyTool, Integer, Tool, ToolAnswer
from kimi_proxy.features.tool_search import MAX_HITS, ListedTool, describe_tool, rank_tools, thin_schema
from kimi_proxy.services.gateway import Gateway

FRESH_S = 300.0  # how long a tool list is cached
RETRY_S = 15.0  # and from a server that did not answer
LIST_S = 20.0  # for a server to start and to list its tools
MAX_PAGES = 50

# Of the endpoint itself; a server's tool of such a name is called with its server's name only.
OWN_NAMES = frozenset(
    {"search_tools", "describe_tool", "call_read_tool", "call_write_tool", recovery.NAME, recovery.SPARE_NAME}
)
_OURS = tuple(recovery.describe_tool(name) for name in (recovery.NAME, recovery.SPARE_NAME))


@dataclass(frozen=True, slots=True)
class ServerTools:
    """The tools of one server as last listed; `problem` says why there are none."""

    tools: tuple[ListedTool, ...]
    at: float
    problem: KimiProxyError | None = None


class ToolDirectory:
    """Knows the tools of every server that the settings name, and calls them through the gateway."""

    def __init__(self, gateway: Gateway, now: Callable[[], float] = time.monotonic) -> None:
        self._gateway = gateway
        self._now = now
        self._known: dict[str, ServerTools] = {}
        self._lock = asyncio.Lock()

    @property
    def servers(self) -> tuple[str, ...]:
        """Return the servers that are switched on and that the settings name or we run."""
        servers = self._gateway.servers
        return tuple(name for name in servers.names if name in self._gateway.named or name in servers.run)

    async def list_tools(self, who: Caller) -> Sequence[ListedTool]:
        """Return the tools of all servers that answer, in the order of the settings."""
        async with self._lock:
            old = [name for name in self.servers if not self._is_fresh(name)]
            for name, listed in zip(old, await asyncio.gather(*(self._ask(who, name) for name in old)), strict=True):
                self._known[name] = listed
        tools = (tool for name in self.servers for tool in self._known[name].tools)
        return [tool for tool in tools if self._owner(tool.name) == tool.server]

    def _owner(self, name: str) -> str | None:
        """Return the server whose name and two underscores a tool's full name begins with, even if it is away.

        What begins so belongs to that server alone: another one may offer a tool of that very name to get its calls.
        """
        owners = (server for server in self.servers if name.startswith(f"{server}__"))
        return max(owners, key=len, default=None)

    def problems(self, who: Caller) -> dict[str, str]:
        """Return the reason for each server that is left out because it did not respond, in words for this person."""
        known = {name: self._known[name].problem for name in self.servers if name in self._known}
        return {name: problem.explain(who) for name, problem in known.items() if problem is not None}

    async def find(self, who: Caller, name: str) -> ListedTool:
        """Return the tool of a name, with its server's name before it or, if only one has it, without."""
        tools = await self.list_tools(who)
        exact = [tool for tool in tools if tool.name == name]
        if not exact and "__" not in name and name not in OWN_NAMES:
            exact = [tool for tool in tools if tool.own_name == name]
        if len(exact) == 1:
            return exact[0]
        near = [tool.name for tool in exact] or get_close_matches(name, [tool.name for tool in tools], 3, 0.5)
        hint = f"the nearest are {', '.join(near)}" if near else "call search_tools to find one"
        raise InvalidParams(
            "name", f"{'several servers have' if exact else 'no server has'} a tool {name[:80]!r}: {hint}"
        )

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
        return known is not None and self._now() - known.at < (RETRY_S if known.problem else FRESH_S)

    async def _ask(self, who: Caller, server: str) -> ServerTools:
        try:
            async with asyncio.timeout(LIST_S):
                return ServerTools(tuple([tool async for tool in self._pages(who, server)]), self._now())
        except TimeoutError:
            problem: KimiProxyError = UpstreamTimeout(f"it has not listed its tools within {LIST_S:g} s")
        except KimiProxyError as e:
            problem = e
        return ServerTools((), self._now(), problem)

    async def _pages(self, who: Caller, server: str) -> AsyncIterator[ListedTool]:
        cursor: JsonValue = None
        for page in range(1, MAX_PAGES + 1):
            params: JsonObject = {"cursor": cursor} if cursor else {}
            message: JsonObject = {"jsonrpc": "2.0", "id": page, "method": "tools/list", "params": params}
            answer = await self._gateway.answer(who, server, message)
            result = answer.get("result") if answer is not None else None
            listed = result.get("tools") if isinstance(result, dict) else None
            for each in listed if isinstance(listed, list) else ():
                # The gateway adds its own recovery tool to each list: here one serves all.
                if isinstance(each, dict) and each not in _OURS:
                    yield ListedTool(server, each)
            cursor = result.get("nextCursor") if isinstance(result, dict) else None
            if not cursor:
                return


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
        tools = await directory.list_tools(who)
        hits: list[JsonValue] = [_describe(tool) for tool in rank_tools(tools, asked.query, asked.limit)]
        answer: JsonObject = {"tools": hits, "searched": len(tools)}
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
    tools: list[AnyTool] = [UpstreamTool(directory, tool) for tool in await directory.list_tools(who)]
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
