"""Tools on demand: which of a client's tools a request leaves out, and how the model finds and calls them.

Two small tools of ours stand in for those that are left out. The model searches with one and calls with the other; the
client reads a call of its own tool, and the next request carries it as a call of ours again. So `tools` keeps its bytes
for as long as a conversation lasts, whatever the model finds.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from kimi_proxy.core import json
from kimi_proxy.core.chat import Request, edit, read
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.chat.wires.calls import UnwrappedCall
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.chat.pipeline import ProviderSearch
from kimi_proxy.features.tool_search import describe_tool, rank_tools
from kimi_proxy.features.tool_weights import client_of, is_core, server_of
from kimi_proxy.features.tool_words import ListedTool

SEARCH, CALL = "find_tools", "use_tool"
LEAST_TOKENS = 1_000  # below that, one search that reads the whole prompt again costs more than a session saves
USED_WITHIN_DAYS = 7
MAX_NAMED_CHARS = 6_000  # of the names in the description; then only how many each server has
NEAR_NAMES = 5


_SEARCH_SCHEMA: JsonObject = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
_CALL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["name", "arguments"],
}
_CALL_TEXT = f"Call a tool that {SEARCH} has found, with the arguments that its inputSchema asks for."


@dataclass(frozen=True, slots=True)
class ClientTool(ListedTool):
    """A function that a client offers, as it is searched for."""

    offered_as: str = ""
    tokens: int = 0

    @property
    def name(self) -> str:
        return self.offered_as


@dataclass(frozen=True, slots=True)
class DeferredTools:
    """The tools that a request leaves out, by name."""

    tools: Mapping[str, ClientTool] = field(repr=False)
    native: Request | None = field(default=None, repr=False)  # the request before, where the provider loads them
    search: ProviderSearch | None = field(default=None, repr=False)  # by which it does

    @property
    def own_tools(self) -> tuple[str, ...]:
        return (self.native.format.search_tool or SEARCH,) if self.native else (SEARCH, CALL)

    @property
    def wrapper(self) -> str:
        return "" if self.native else CALL

    def _find(self, arguments: str) -> JsonValue:
        """Return what a provider that loads tools reads for a search."""
        names = [tool.name for tool in self._search(arguments)]
        return found_tools(self.native, names) if self.native else None

    def _search(self, arguments: str) -> list[ListedTool]:
        given = _read(arguments)
        query = given.get("query") if isinstance(given, dict) else None
        return rank_tools(list(self.tools.values()), query if isinstance(query, str) else "")

    def unwrap(self, arguments: str) -> UnwrappedCall | None:
        """Return the call that the arguments of `use_tool` stand for; None if they name no tool that was left out."""
        match _read(arguments):
            case {"name": str(name), "arguments": dict(given)} if name in self.tools:
                return UnwrappedCall(name, json.encode(given).decode())
            case {"name": str(name), "arguments": str(text)} if name in self.tools and isinstance(_read(text), dict):
                return UnwrappedCall(name, text)
            case {"name": str(name), **rest} if (
                name in self.tools and rest.keys() <= {"arguments"} and not any(rest.values())
            ):
                return UnwrappedCall(name, "{}")
        return None

    def answer(self, tool: str, arguments: str) -> JsonValue:
        """Return what the model reads for a search, or for a call that could not be passed on."""
        if self.native:
            return self._find(arguments)
        given = _read(arguments)
        asked = given if isinstance(given, dict) else {}
        if tool == SEARCH:
            hits: list[JsonValue] = [describe_tool(each) for each in self._search(arguments)]
            return json.encode({"tools": hits, "searched": len(self.tools), "call_with": CALL}).decode()
        name = asked.get("name")
        if isinstance(name, str) and name in self.tools:
            return f"invalid_arguments: give arguments as an object for {json.encode(self._describe(name)).decode()}"
        words = name if isinstance(name, str) else ""
        near = [each.name for each in rank_tools(list(self.tools.values()), words.replace("_", " "), NEAR_NAMES)]
        hint = f"did you mean {', '.join(near)}?" if near else f"search with {SEARCH}"
        return f"unknown_tool: {words[:80]!r} is no tool that {CALL} can call; {hint}"

    def definition(self, name: str) -> str:
        """Return what the model needs for another call of a tool that it has called."""
        return f"[{CALL}, {json.encode(self._describe(name)).decode()}]"

    def _describe(self, name: str) -> JsonObject:
        return describe_tool(self.tools[name])


def client_tools(request: Request, count: Callable[[str], int] | None = None) -> list[ClientTool]:
    """Return the client's functions; without `count` their tokens are left out."""
    found: list[ClientTool] = []
    for name, raw in request.format.functions(request.json):
        about, schema = request.format.definition(raw)
        server = server_of(name)
        own = name.removeprefix(f"mcp__{server}__") if server else name
        listing: JsonObject = {"name": own, "description": about, "inputSchema": schema}
        weight = count(bytes(raw).decode("utf-8", "replace")) if count else 0
        found.append(ClientTool(server, listing, name, weight))
    return found


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user's settings and the past say about the tools of a request."""

    is_automatic: bool  # the client's rarely used tools may be left out
    always: Sequence[str] = ()  # names, or their beginnings with a star: these stay
    chosen: Sequence[str] = ()  # likewise: these go
    used: Collection[str] = ()  # called in this conversation, or lately in others


def choose(tools: Sequence[ClientTool], choice: Choice, count: Callable[[str], int]) -> frozenset[str]:
    """Return the names of the tools to leave out; none if that would not pay."""
    named = {tool.name for tool in tools if fits(tool.name, choice.chosen) and not fits(tool.name, choice.always)}
    rare = {tool.name for tool in tools if choice.is_automatic and _is_rare(tool.name, choice)}
    for names, least in ((named | rare, LEAST_TOKENS), (named, 1)):
        if names and _count_saved(tools, names, count) >= least:
            return frozenset(names)
    return frozenset()


def _count_saved(tools: Sequence[ClientTool], names: Collection[str], count: Callable[[str], int]) -> int:
    return sum(tool.tokens for tool in tools if tool.name in names) - weigh_ours(names, count)


def weigh_ours(names: Collection[str], count: Callable[[str], int]) -> int:
    """Return the tokens of our two tools, which stand in for these."""
    schemas = json.encode([_SEARCH_SCHEMA, _CALL_SCHEMA]).decode()
    return count(_search_text(names)) + count(_CALL_TEXT) + count(schemas)


def _is_rare(name: str, choice: Choice) -> bool:
    return not (is_core(name) or fits(name, choice.always) or name in choice.used)


def fits(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a name is among these, or begins as one that ends in a star does."""
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in patterns)


def is_opted_in(clients: Sequence[str], user_agent: str, names: Sequence[str]) -> bool:
    """Return whether the settings name this client: `*`, or how its name or its `User-Agent` begins."""
    titles = user_agent.lower(), client_of(names).lower()
    return any(client == "*" or any(title.startswith(client.lower()) for title in titles) for client in clients)


def may_defer(request: Request) -> bool:
    """Return whether tools can be left out: not where the client does so, and not where ours have no name."""
    if SEARCH in request.tool_names or CALL in request.tool_names or not any(request.format.functions(request.json)):
        return False
    return not any(
        b'"defer_loading"' in bytes(listed) or b'"tool_search' in bytes(listed) or b'"ToolSearch"' in bytes(listed)
        for listed in request.format.tool_lists(request.json)
    )


def is_forced(request: Request, names: Collection[str]) -> bool:
    """Return whether the model has to call one of these tools, or one of a list with them."""
    forced = request.members.get(request.format.tool_choice)
    return forced is not None and any(json.encode(name) in bytes(forced) for name in names)


def leave_out(
    request: Request, names: Collection[str], is_native: bool = False
) -> tuple[Request, DeferredTools | None]:
    """Return the request without these tools, and what stands for them; the same request if it has none of them.

    `is_native` says that the provider itself loads tools when the model has found them.
    """
    tools = {tool.name: tool for tool in client_tools(request) if tool.name in names}
    if not tools or is_forced(request, tools):
        return request, None
    if is_native:
        search = request.format.new_search_tool(SEARCH, _search_text(tools, ""), _SEARCH_SCHEMA)
        inserted = dict(_with_searches(request, tools))
        return edit.with_native_search(request, tools, search, inserted), DeferredTools(tools, request)
    deferred = DeferredTools(tools)
    form = request.format
    ours = [
        form.new_tool(SEARCH, _search_text(tools), _SEARCH_SCHEMA),
        form.new_tool(CALL, _CALL_TEXT, _CALL_SCHEMA),
    ]
    texts = dict(_with_definitions(request, deferred))
    return edit.with_deferred_tools(request, tools, ours, CALL, texts), deferred


def found_tools(request: Request, names: Sequence[str]) -> JsonValue:
    described = {name: read.as_object(read.value(raw)) for name, raw in request.format.functions(request.json)}
    return request.format.found_tools([(name, described[name]) for name in names if name in described])


def _with_searches(request: Request, names: Collection[str]) -> Iterator[tuple[int, list[JsonObject]]]:
    """Yield for each message with the first call of a tool the search by which it was found, and where it belongs.

    The client knows of no search. This one follows from the request alone, so that every later request repeats it.
    """
    known: set[str] = set()
    for at, message in enumerate(request.messages):
        calls = [part.name for part in message.parts if part.kind == "tool_call" and part.name in names]
        if new := [name for name in dict.fromkeys(calls) if name not in known]:
            known.update(new)
            while at and (before := request.messages[at - 1].parts) and all(p.kind == "thinking" for p in before):
                at -= 1  # a thought stays with what follows on it
            id = "srch_" + sha256(" ".join(new).encode()).hexdigest()[:16]
            call = request.format.new_search_call(id, SEARCH, {"query": " ".join(new)})
            yield at, [call, *request.format.new_tool_results([(id, found_tools(request, new))], [SEARCH])]


def called_names(request: Request) -> frozenset[str]:
    """Return the names of the tools that were called in a conversation."""
    parts = (part for message in request.messages for part in message.parts)
    return frozenset(part.name for part in parts if part.kind == "tool_call")


def _with_definitions(request: Request, deferred: DeferredTools) -> Iterator[tuple[Place, str]]:
    """Yield the first result of each tool that was left out, with its definition: the search is not in the history.

    It follows from the request alone, so that every later request repeats the same bytes.
    """
    waiting: dict[str, str] = {}  # tools by the ids of their calls
    found: dict[str, Place] = {}
    for at, message in enumerate(request.messages):
        for index, part in enumerate(message.parts):
            if part.kind == "tool_call" and part.name in deferred.tools and part.name not in found:
                waiting[part.call_id] = part.name
            elif part.kind == "tool_result" and part.is_string and part.call_id in waiting:
                name = waiting[part.call_id]
                if found.get(name, (at, 0))[0] == at:
                    found[name] = (at, index)
        waiting = {call: name for call, name in waiting.items() if name not in found}
    for name, place in found.items():
        yield place, f"{request.part(*place).text}\n\n{deferred.definition(name)}"


def _search_text(names: Collection[str], how: str = f" with their inputSchema; call one with {CALL}") -> str:
    """Return the description of our search, with the names of the tools that it finds."""
    by_server: dict[str, list[str]] = {}
    for name in sorted(names):
        server = server_of(name)
        by_server.setdefault(f"mcp__{server}__" if server else "", []).append(name)
    lists = [
        f"{prefix}: {', '.join(name.removeprefix(prefix) for name in found)}" if prefix else ", ".join(found)
        for prefix, found in by_server.items()
    ]
    shown = "\n".join(lists)
    if len(shown) > MAX_NAMED_CHARS:
        shown = "\n".join(f"{prefix or 'others'}: {len(found)} tools" for prefix, found in by_server.items())
    return (
        f"Find more tools by what they do: {len(names)} tools are available that are not described here. Returns those "
        f"that fit best{how}. Names, after their prefix:\n{shown}"
    )


def _read(text: str) -> JsonValue:
    try:
        return json.decode(text.encode("utf-8", "replace"))
    except ParseError:
        return None
