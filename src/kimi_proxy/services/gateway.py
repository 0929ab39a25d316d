"""The gateway at work: its servers, what it keeps, and whom it leaves alone for a while."""

import asyncio
import logging
import os
import re
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePath
from urllib.parse import unquote, urlsplit

from kimi_proxy.core import json, jsonrpc, mcp
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.servers import ALIASES, PRUNER, MaskingSettings, McpServer, McpSettings, PruningSettings
from kimi_proxy.core.errors import (
    CallRefused,
    InvalidRequest,
    KimiProxyError,
    PruneIdNotFound,
    StoreUnavailable,
    UnknownServer,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.jsonrpc import Call
from kimi_proxy.core.markers import is_id, new_id, quoted_id
from kimi_proxy.core.prune import Options, Question
from kimi_proxy.features import masking, recovery, source_type
from kimi_proxy.features.masking import Cut, Plan
from kimi_proxy.features.tool import Answer
from kimi_proxy.proxy.mcp import Upstreams
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.originals import decoded, encoded
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.store import Original, Store

MAX_PATH_CHARS = 4096

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PATH_WORDS = frozenset(
    (
        *("path", "paths", "file", "files", "filename", "filepath", "dir", "dirs", "directory", "directories"),
        *("folder", "folders", "root", "roots", "cwd", "uri", "uris", "source", "src", "destination", "dest", "dst"),
        *("target", "workspace", "repo", "repository", "location"),
    )
)
_TEXT_WORDS = frozenset(
    (
        *("content", "contents", "text", "texts", "pattern", "patterns", "query", "regex", "search", "replace"),
        *("replacement", "old", "new", "message", "description", "prompt", "thought", "body", "code", "title"),
        *("goal", "note", "notes", "summary", "comment", "data", "value", "diff", "patch", "sql", "expression"),
    )
)
_LOOKS_LIKE_PATH = re.compile(r"/(?!/)|~|\.\.?[/\\]|file:|[A-Za-z]:\\")


@dataclass(frozen=True, slots=True)
class PathArgument:
    """A path, and the name of the argument it came in."""

    name: str
    path: str


def in_arguments(arguments: JsonValue) -> Iterator[PathArgument]:
    """Every string that is a path by its argument's name, or looks like one and isn't a text by its name."""
    rest: list[tuple[str, JsonValue]] = [("", arguments)]
    while rest:
        name, value = rest.pop()
        if isinstance(value, str):
            if _is_path(name, value):
                yield PathArgument(name, _without_scheme(value))
        elif isinstance(value, Mapping):
            rest.extend((str(key), item) for key, item in value.items())
            rest.extend(("", str(key)) for key in value)  # the name of a member may be a path as well
        elif isinstance(value, list):
            rest.extend((name, item) for item in value)


def is_inside(path: str, root: str) -> bool:
    """Part by part: /a/root-evil is not in /a/root. Both are real paths already."""
    return PurePath(path).is_relative_to(root)


def _is_path(name: str, value: str) -> bool:
    word = next(reversed(_WORD.findall(name)), "").lower()
    if word in _PATH_WORDS:
        # An address on the net is no path.
        return "://" not in value or value.lower().startswith("file:")
    is_short = len(value) <= MAX_PATH_CHARS and "\n" not in value
    looks = _LOOKS_LIKE_PATH.match(value) is not None or "/../" in value or value.endswith("/..")
    return is_short and looks and word not in _TEXT_WORDS


def _without_scheme(value: str) -> str:
    if not value.lower().startswith("file:"):
        return value
    try:
        parts = urlsplit(value)
    except ValueError:
        return value
    return unquote(parts.path if parts.netloc in ("", "localhost") else f"//{parts.netloc}{parts.path}")


THRESHOLD = 5
HALF_LIFE_S = 30.0
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Circuit:
    """Failures that fade with time. Five in short order open the circuit; a success closes it for good."""

    failures: float = 0.0
    counted_at: float = 0.0
    pauses: int = 0
    closed_at: float = 0.0

    def blocked_for(self, now: float) -> float:
        """Seconds until the next call may try; 0 if one may now."""
        return max(0.0, self.closed_at - now)

    def tried(self, now: float) -> "Circuit":
        """A call leaves. After a pause it leaves alone: the others wait for what becomes of it."""
        if self.pauses == 0:
            return self
        return Circuit(self.failures, self.counted_at, self.pauses, now + FIRST_PAUSE_S)

    def failed(self, now: float) -> "Circuit":
        faded = self.failures * 0.5 ** (max(0.0, now - self.counted_at) / HALF_LIFE_S)
        failures = faded + 1
        # Five failures within a second or two have faded to a little less than five.
        if failures < THRESHOLD - 0.5 and self.pauses == 0:
            return Circuit(failures, now)
        pause_s = min(FIRST_PAUSE_S * 2.0**self.pauses, LONGEST_PAUSE_S)
        return Circuit(failures, now, self.pauses + 1, now + pause_s)

    def succeeded(self) -> "Circuit":
        return self if self == CLOSED else CLOSED


CLOSED = Circuit()


# The gateway between an agent and an MCP server: passes messages on, and keeps long answers short.
#
# Whatever it needs done in the world (forward, keep, look up a path) it is handed as a function.

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
_OWN_TOOLS = frozenset({recovery.NAME, recovery.SPARE_NAME, "recover_range", "prune_text"})


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
    prune: Callable[[PruningSettings, Goal, Sequence[str]], Awaitable[Mapping[str, str]]]
    plan: Callable[[JsonValue, MaskingSettings], Awaitable[Plan]]


class MCPGatewayService:
    def __init__(self, servers: McpSettings, outside: Outside) -> None:
        self._servers = servers
        self._outside = outside
        self._recover = recovery.tool(outside.original)
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
        self, payload: JsonValue, limits: MaskingSettings | None = None, server_name: str = ""
    ) -> JsonValue:
        """`payload` with its long strings masked, wherever they are in it; what cannot be kept stays whole."""
        return await self._masked(server_name, limits or MaskingSettings(), PruningSettings(), NO_GOAL, payload)

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
        if server.root and (found := list(in_arguments(arguments))):
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
            data = await self._masked(name, server.masking, PruningSettings(), NO_GOAL, error["data"])
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
        self, server_name: str, limits: MaskingSettings, pruning: PruningSettings, goal: Goal, value: JsonValue
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
            "name": recovery.SPARE_NAME if recovery.NAME in self._taken.get(server_name, ()) else recovery.NAME,
            "title": self._recover.title,
            "description": self._recover.description,
            "inputSchema": self._recover.schema,
            "annotations": {"readOnlyHint": True},
        }

    def _is_recovery(self, server_name: str, server: McpServer, call: Call) -> bool:
        name = _tool_name(call)
        taken = recovery.NAME in self._taken.get(server_name, ())
        return server.masking.enabled and (name == recovery.SPARE_NAME or (name == recovery.NAME and not taken))

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
    named = [argument.path for argument in in_arguments(arguments)]
    return Goal(str(said or " ".join(words))[:GOAL_MAX_CHARS], named[0] if named else _tool_name(call))


def _after(cuts: Mapping[str, Cut], pruned: Mapping[str, str], limits: MaskingSettings) -> dict[str, Cut | None]:
    return {text: _cut(pruned[text], limits) if text in pruned else cut for text, cut in cuts.items()}


def _cut(text: str, limits: MaskingSettings) -> Cut | None:
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
    way = f" Call {recovery.NAME} with id {marked!r} to read the original text," if marked else ""
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


SMOOTHING = 0.2  # the share of the newest answer in the time that answers take


@dataclass(slots=True)
class Tally:
    calls: int = 0
    failures: int = 0
    latency_ms: float | None = None
    last_error: str = ""
    last_error_code: str = ""
    last_error_at: float = 0.0
    tools: int | None = None
    masked_texts: int = 0
    masked_chars: int = 0

    def took(self, seconds: float) -> None:
        newest = seconds * 1000
        self.latency_ms = (
            newest if self.latency_ms is None else self.latency_ms + SMOOTHING * (newest - self.latency_ms)
        )

    def failed(self, code: str, problem: str, at: float) -> None:
        self.last_error_code, self.last_error, self.last_error_at = code, problem, at

    def masked(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.masked_texts += 1
            self.masked_chars += len(text)


SCOPE = "local"
TOOLS_REMEMBERED = 10_000
SHORT_CHARS = 250_000
KEEP_S = 5.0  # an answer does not wait longer for the disk

log = logging.getLogger(__name__)


class Gateway:
    """What `services/gateway.py` decides, done."""

    def __init__(
        self,
        config: Config,
        store: Store,
        pruner: Pruner,
        metrics: Metrics,
        env: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
        publish: Publish = no_op,
    ) -> None:
        servers, headers = _with_own_pruner(config)
        self.servers = servers
        self.upstreams = Upstreams(servers, os.environ if env is None else env, headers)
        self.tallies: defaultdict[str, Tally] = defaultdict(Tally)
        self._store = store
        self._pruner = pruner
        self._metrics = metrics
        self._now = now
        self._publish = publish
        self._circuits: dict[str, Circuit] = {}
        self._tools: dict[tuple[str, str], bytes] = {}
        outside = Outside(self._forward, self._keep, self.original, _escape, self._prune, _plan)
        self._service = MCPGatewayService(servers, outside)

    def check(self, server_name: str) -> None:
        """Refuse a name that no server has."""
        self._service.check(server_name)

    async def answer(self, server_name: str, message: JsonValue) -> JsonObject | None:
        """The response to one message; our errors are raised."""
        return await self._service.answer(server_name, message)

    async def handle_rpc(self, server_name: str, request_json: JsonValue) -> JsonValue:
        """The response to a message or a batch; our errors are responses."""
        return await self._service.handle_rpc(server_name, request_json)

    async def original(self, mask_id: str) -> str:
        """The text behind a marker."""
        if not is_id(mask_id):
            raise PruneIdNotFound(mask_id, "unknown")
        raw = (await self._store.original(SCOPE, mask_id)).text
        return decoded(raw)

    async def close(self) -> None:
        await self.upstreams.close()

    def blocked_for(self, name: str) -> float:
        """Seconds until a server that failed too often is tried again; 0 if it may be now."""
        return self._circuits.get(name, CLOSED).blocked_for(self._now())

    def forgive(self, name: str) -> None:
        """Forget a server's failures: it is known to be there again."""
        self._circuits[name] = CLOSED

    async def _forward(self, server_name: str, message: JsonObject) -> JsonObject | None:
        name = ALIASES.get(server_name, server_name)
        circuit = self._circuits.get(name, CLOSED)
        wait_s = circuit.blocked_for(self._now())
        if wait_s > 0:
            raise UpstreamUnreachable(f"{name} failed too often: it is tried again in {wait_s:.1f} s", wait_s)
        began, tally = self._now(), self.tallies[name]
        self._circuits[name] = circuit.tried(began)
        tally.calls += 1
        try:
            answer = await self.upstreams.forward_jsonrpc(name, message)
        except KimiProxyError as e:
            self._failed(name, e)
            raise
        tally.took(self._now() - began)
        self._circuits[name] = self._circuits[name].succeeded()
        self._metrics.gateway_calls.labels(name, "ok").inc()
        self._publish("gateway_event", {"server": name, "outcome": "ok", "ms": round((self._now() - began) * 1000)})
        if answer is not None and message.get("method") == "tools/list":
            self._compare_tools(name, answer)
        return answer

    def _compare_tools(self, name: str, answer: JsonObject) -> None:
        """A server that changes what a tool says it does may be up to something: a person should know."""
        result = answer.get("result")
        listed = result.get("tools") if isinstance(result, dict) else None
        for tool in listed if isinstance(listed, list) else []:
            place = (name, str(tool.get("name"))[:200] if isinstance(tool, dict) else "")
            now = sha256(json.encode_deep(tool)).digest()
            if len(self._tools) > TOOLS_REMEMBERED:
                self._tools.clear()
            if self._tools.setdefault(place, now) != now:
                self._tools[place] = now
                log.warning("mcp tool changed", extra={"server": name, "tool": place[1]})

    def _failed(self, name: str, error: KimiProxyError) -> None:
        """Only a server that cannot be reached gets a rest; one that answers nonsense is at least there."""
        circuit = self._circuits[name]
        is_down = isinstance(error, UpstreamUnreachable | UpstreamTimeout)
        self._circuits[name] = circuit.failed(self._now()) if is_down else circuit.succeeded()
        self._metrics.gateway_calls.labels(name, error.code).inc()
        self._publish("gateway_event", {"server": name, "outcome": error.code})
        self.tallies[name].failures += 1
        self.tallies[name].failed(error.code, str(error), self._now())
        log.warning("mcp server failed", extra={"server": name, "code": error.code, "what": str(error)[:300]})

    async def _keep(self, server_name: str, texts: Sequence[str]) -> Mapping[str, str]:
        """The ids of the texts that are on disk; what is not goes out whole."""
        kept: dict[str, str] = {}
        try:
            async with asyncio.timeout(KEEP_S):
                for text in texts:
                    kept[text] = await self._kept(server_name, text)
        except (StoreUnavailable, TimeoutError) as e:
            log.warning("masking needs the store", extra={"server": server_name, "what": str(e)[:300]})
            self._metrics.gateway_masked.labels(server_name, "recovery_unavailable").inc(len(texts) - len(kept))
        self._metrics.gateway_masked.labels(server_name, "masked").inc(len(kept))
        if kept:
            told: JsonObject = {"outcome": "masked", "texts": len(kept), "chars": sum(map(len, kept))}
            self._publish("gateway_event", {"server": server_name, "ids": list(kept.values()), **told})
        self.tallies[ALIASES.get(server_name, server_name)].masked(kept)
        return kept

    async def _kept(self, server_name: str, text: str) -> str:
        """The same text gets the same id again, as long as that one lives."""
        # What takes less than a millisecond is done sooner than a thread is asked to.
        raw, key = _keyed(text) if len(text) < SHORT_CHARS else await asyncio.to_thread(_keyed, text)
        found = await self._store.find(SCOPE, key)
        if found is not None:
            return found
        mask_id = new_id("msk")
        note = json.encode({"what": "mask", "server": server_name, **self._mask_note(server_name, text)})
        await self._store.keep(Original(mask_id, SCOPE, key, raw, note))
        return mask_id

    def _mask_note(self, server_name: str, text: str) -> JsonObject:
        """By which a person can be shown later what was left of the text."""
        server = self.servers.server(server_name)
        limits = server.masking if server else MaskingSettings()
        return {"chars": len(text), "lines": text.count("\n") + 1, "limits": limits.model_dump(exclude={"enabled"})}

    async def _prune(self, settings: PruningSettings, goal: Goal, texts: Sequence[str]) -> Mapping[str, str]:
        pruned: dict[str, str] = {}
        options = Options(settings.max_prune_ratio, settings.min_keep_lines, settings.timeout_ms, False, True)
        for text in texts:
            kind = source_type.guess(goal.source, text)
            answer = await self._pruner.prune(Question(text, goal.text, kind, options), SCOPE)
            if answer.pruned.annotations:
                pruned[text] = answer.pruned.text
        return pruned


def _keyed(text: str) -> tuple[bytes, bytes]:
    """A text as it is kept, and what it is found by."""
    raw = encoded(text)
    return raw, sha256(b"mask\0" + raw).digest()


async def _plan(value: JsonValue, limits: MaskingSettings) -> Plan:
    if masking.is_small(value):
        return masking.plan(value, limits)
    return await asyncio.to_thread(masking.plan, value, limits)


async def _escape(root: str, arguments: Sequence[PathArgument]) -> PathArgument | None:
    return await asyncio.to_thread(_first_escape, root, arguments)


def _first_escape(root: str, arguments: Sequence[PathArgument]) -> PathArgument | None:
    real_root = os.path.realpath(Path(root).expanduser())
    for argument in arguments:
        try:
            whole = Path(real_root) / Path(argument.path).expanduser()
            # Servers may resolve `..` before or after they follow links: neither may lead out.
            places = (os.path.realpath(whole), os.path.realpath(os.path.normpath(whole)))
        except (OSError, ValueError, RuntimeError):
            return argument
        if not all(is_inside(place, real_root) for place in places):
            return argument
    return None


def _with_own_pruner(config: Config) -> tuple[McpSettings, Mapping[str, Mapping[str, str]]]:
    """The servers, with our pruner where it really listens, and the headers that it wants from us.

    Nobody else gets our token: an address that the file names is somebody else's.
    """
    known, where = config.mcp.servers[PRUNER], config.mcp_pruner
    if known.url != McpSettings().servers[PRUNER].url:
        return config.mcp, {}
    ours = known.model_copy(update={"url": f"http://{reachable(where.host)}:{where.port}/rpc"})
    token = {} if config.token is None else {"authorization": f"Bearer {config.token.get_secret_value()}"}
    return config.mcp.model_copy(update={"servers": {**config.mcp.servers, PRUNER: ours}}), {PRUNER: token}


def reachable(host: str) -> str:
    """`host` as somebody on this machine would address it."""
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - whoever listens everywhere listens here too
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
