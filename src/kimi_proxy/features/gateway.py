"""The gateway between an agent and an MCP server: passes messages on, and keeps long answers short.

Whatever it needs done in the world (forward, keep, look up a path) it is handed as a function.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kimi_proxy.core import jsonrpc, mcp
from kimi_proxy.core.errors import CallRefused, InvalidRequest, KimiProxyError, UnknownServer
from kimi_proxy.core.jsonrpc import Call
from kimi_proxy.core.markers import quoted_id
from kimi_proxy.core.servers import Masking, Mcp, McpServer, Pruning
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features import masking, paths, redeem
from kimi_proxy.features.masking import Cut, Plan
from kimi_proxy.features.paths import PathArgument
from kimi_proxy.features.tool import Answer

MAX_BATCH = 100
GOAL_MAX_CHARS = 280

# The protocol's own methods: what they answer is read by programs, or is what the user asked to see.
_UNTOUCHED = frozenset(
    {
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
    }
)
# What our own tools recovered or pruned is not cut again, whoever serves them.
_OWN_TOOLS = frozenset({redeem.NAME, redeem.SPARE_NAME, "recover_range", "prune_text"})


@dataclass(frozen=True, slots=True)
class Goal:
    """What a call is after, and the file or tool that its answer is named by."""

    text: str
    source: str


NO_GOAL = Goal("", "")


@dataclass(frozen=True, slots=True)
class Outside:
    """What the gateway has done for it."""

    forward: Callable[[str, JsonObject], Awaitable[JsonObject | None]]
    # Server and texts in; the id of each text that is safely kept out.
    keep: Callable[[str, Sequence[str]], Awaitable[Mapping[str, str]]]
    original: Callable[[str], Awaitable[str]]
    # The first of these paths that leads out of the root, links followed.
    escape: Callable[[str, Sequence[PathArgument]], Awaitable[PathArgument | None]]
    # Each text that could be pruned for the goal, as it is then.
    prune: Callable[[Pruning, Goal, Sequence[str]], Awaitable[Mapping[str, str]]]
    plan: Callable[[JsonValue, Masking], Awaitable[Plan]]


class MCPGatewayService:
    def __init__(self, servers: Mcp, outside: Outside) -> None:
        self._servers = servers
        self._outside = outside
        self._recover = redeem.tool(outside.original)
        self._taken: dict[str, frozenset[str]] = {}

    async def handle_rpc(self, server_name: str, request_json: JsonValue) -> JsonValue:
        """The JSON-RPC response to a request, a notification (None) or a batch; errors are responses too."""
        if not isinstance(request_json, list):
            return await self._response(server_name, request_json)
        if not 0 < len(request_json) <= MAX_BATCH:
            problem = InvalidRequest(f"a batch holds 1 to {MAX_BATCH} messages")
            return jsonrpc.failure_of(None, problem)
        responses = [await self._response(server_name, message) for message in request_json]
        return [response for response in responses if response is not None] or None

    async def _response(self, server_name: str, message: JsonValue) -> JsonObject | None:
        try:
            return await self.answer(server_name, message)
        except KimiProxyError as e:
            return jsonrpc.failure_of(jsonrpc.id_of(message), e)

    async def answer(self, server_name: str, message: JsonValue) -> JsonObject | None:
        """The life of one message, from the agent to the server and back."""
        server = self.check(server_name)
        call = jsonrpc.read(message)
        if call is None or not isinstance(message, dict):
            return None  # a response: we asked nothing
        if call.method == "tools/call":
            if self._is_recovery(server_name, server, call):
                return _result(message, await self._recovered(call))
            await self._refuse_unsafe(server, call)
        answer = await self._outside.forward(server_name, message)
        if answer is None:
            return None
        return await self._shown(server_name, server, call, answer)

    async def apply_observation_masking(
        self, payload: JsonValue, limits: Masking | None = None, server_name: str = ""
    ) -> JsonValue:
        """`payload` with its long strings masked, wherever they are in it; what cannot be kept stays whole."""
        return await self._masked(server_name, limits or Masking(), Pruning(), NO_GOAL, payload)

    def check(self, name: str) -> McpServer:
        """The server of that name; UnknownServer if there is none."""
        server = self._servers.server(name)
        if server is None:
            raise UnknownServer(name, self._servers.names)
        return server

    async def _refuse_unsafe(self, server: McpServer, call: Call) -> None:
        name, arguments = _tool_name(call), call.params.get("arguments")
        if server.tools and name not in server.tools:
            raise CallRefused("tool", f"the tool {name[:80]!r} is not among those allowed for this server")
        if not server.allow_marker_writes and (marked := _quoted_id(arguments)) is not None:
            raise CallRefused("marker", _marker_advice(marked))
        if server.root and (found := list(paths.in_arguments(arguments))):
            escape = await self._outside.escape(server.root, found)
            if escape is not None:
                raise CallRefused(
                    "path",
                    f"the argument {escape.name!r} leads out of the workspace {server.root}: "
                    f"{escape.path[:200]!r}. Use a path inside of it.",
                )

    async def _shown(self, name: str, server: McpServer, call: Call, answer: JsonObject) -> JsonObject:
        """The server's answer as the agent sees it."""
        error, result = answer.get("error"), answer.get("result")
        if isinstance(error, dict) and "data" in error:
            data = await self._masked(name, server.masking, Pruning(), NO_GOAL, error["data"])
            return answer if data is error["data"] else {**answer, "error": {**error, "data": data}}
        if not isinstance(result, dict | list | str):
            return answer
        if call.method in ("initialize", "server/discover"):
            shown: JsonValue = _with_tools(result) if server.masking.enabled else result
        elif call.method == "tools/list":
            shown = self._listed(name, server, call, result)
        elif call.method in _UNTOUCHED or _tool_name(call) in _OWN_TOOLS:
            shown = result
        else:
            goal = goal_of(call) if server.pruning.enabled else NO_GOAL
            shown = await self._masked(name, server.masking, server.pruning, goal, result)
        return answer if shown is result else {**answer, "result": shown}

    async def _masked(
        self, server_name: str, limits: Masking, pruning: Pruning, goal: Goal, value: JsonValue
    ) -> JsonValue:
        if not limits.enabled:
            return value
        plan = await self._outside.plan(value, limits)
        cuts = {cut.text: cut for cut in plan.cuts}
        if not cuts:
            return value
        shown: dict[str, str] = {}
        if pruning.enabled:
            prunable = [cut.text for cut in cuts.values() if cut.among is None]
            shown |= await self._outside.prune(pruning, goal, prunable)
            # A text that is still too long is masked after it was pruned; others are done.
            cuts = {text: cut for text, cut in _after(cuts, shown, limits).items() if cut is not None}
        # No text is replaced by a marker before its original is on disk.
        ids = await self._outside.keep(server_name, [cut.text for cut in cuts.values()])
        shown |= {text: cut.shown(ids[cut.text]) for text, cut in cuts.items() if cut.text in ids}
        return masking.apply(plan, shown)

    def _listed(self, name: str, server: McpServer, call: Call, result: JsonValue) -> JsonValue:
        """The server's tools that may be called, and our own on the last page."""
        if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
            return result
        tools: list[JsonValue] = list(result["tools"])
        if server.tools:
            tools = [tool for tool in tools if isinstance(tool, dict) and tool.get("name") in server.tools]
        if server.masking.enabled:
            before = self._taken.get(name, frozenset()) if call.params.get("cursor") else frozenset()
            self._taken[name] = before | {str(tool.get("name")) for tool in tools if isinstance(tool, dict)}
            if not result.get("nextCursor"):
                tools.append(self._described(name))
        return result if tools == result["tools"] else {**result, "tools": tools}

    def _described(self, server_name: str) -> JsonObject:
        return {
            "name": redeem.SPARE_NAME if redeem.NAME in self._taken.get(server_name, ()) else redeem.NAME,
            "title": self._recover.title,
            "description": self._recover.description,
            "inputSchema": self._recover.schema,
            "annotations": {"readOnlyHint": True},
        }

    def _is_recovery(self, server_name: str, server: McpServer, call: Call) -> bool:
        name = _tool_name(call)
        taken = redeem.NAME in self._taken.get(server_name, ())
        return server.masking.enabled and (name == redeem.SPARE_NAME or (name == redeem.NAME and not taken))

    async def _recovered(self, call: Call) -> Answer:
        arguments = call.params.get("arguments")
        try:
            return await self._recover.call(arguments if isinstance(arguments, dict) else {})
        except KimiProxyError as e:
            # A model reads the text of a result; of an error it may see the code alone.
            return Answer(f"{e.code}: {e}", is_error=True)


def goal_of(call: Call) -> Goal:
    """What the caller says it is after, else the words of its own arguments."""
    meta = mcp.meta_of({"params": call.params})
    arguments = call.params.get("arguments")
    given = arguments if isinstance(arguments, Mapping) else {}
    words = [value for value in given.values() if isinstance(value, str) and "\n" not in value]
    said = next((meta[key] for key in ("goal", "kimi-proxy/goal") if isinstance(meta.get(key), str)), None)
    named = [argument.path for argument in paths.in_arguments(arguments)]
    return Goal(str(said or " ".join(words))[:GOAL_MAX_CHARS], named[0] if named else _tool_name(call))


def _after(cuts: Mapping[str, Cut], pruned: Mapping[str, str], limits: Masking) -> dict[str, Cut | None]:
    return {text: _cut(pruned[text], limits) if text in pruned else cut for text, cut in cuts.items()}


def _cut(text: str, limits: Masking) -> Cut | None:
    found = masking.look(text, limits)
    return found if isinstance(found, Cut) else None


def _tool_name(call: Call) -> str:
    name = call.params.get("name") if call.method == "tools/call" else None
    return name if isinstance(name, str) else ""


def _quoted_id(value: JsonValue) -> str | None:
    """The id in the first marker that any string of `value` quotes."""
    rest: list[JsonValue] = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            if (found := quoted_id(item)) is not None:
                return found
        elif isinstance(item, Mapping):
            rest.extend((*item.keys(), *item.values()))
        elif isinstance(item, list):
            rest.extend(item)
    return None


def _marker_advice(marked: str) -> str:
    way = f" Call {redeem.NAME} with id {marked!r} to read the original text," if marked else ""
    return (
        "an argument holds a marker of kimi-proxy in place of the text it hides: written to a file, "
        f"that text would be lost.{way or ' Read the source again,'} then send the real text."
    )


def _with_tools(result: JsonValue) -> JsonValue:
    """Our recovery tool makes a server of tools out of one that had none."""
    capabilities = result.get("capabilities") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(capabilities, dict) or "tools" in capabilities:
        return result
    return {**result, "capabilities": {**capabilities, "tools": {}}}


def _result(message: JsonObject, answer: Answer) -> JsonObject:
    result: JsonObject = {"content": [{"type": "text", "text": answer.text}], "isError": answer.is_error}
    if mcp.is_stateless(message):
        result = mcp.stamped("tools/call", result, mcp.OURSELVES)
    return jsonrpc.success(jsonrpc.id_of(message), result)
