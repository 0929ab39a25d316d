"""The gateway between an agent and its MCP servers.

The path of a message, from top to bottom: check the call → forward it → prune and mask long texts of the answer, after
their originals are on disk → return the answer."""

import asyncio
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NotRequired, TypeAlias, TypedDict

from kimi_proxy.core import json, jsonrpc, mcp, tokens
from kimi_proxy.core.addresses import Address
from kimi_proxy.core.aside import HASHED_BYTES, aside
from kimi_proxy.core.cache import LruCache, in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.servers import ALIASES, PRUNER, MaskingSettings, McpServer, McpSettings, PruningSettings
from kimi_proxy.core.errors import (
    CallRefused,
    InvalidRequest,
    KimiProxyError,
    StoreUnavailable,
    UnknownServer,
    UpstreamTimeout,
    UpstreamUnreachable,
    WarningCode,
)
from kimi_proxy.core.json import JsonObject, JsonValue, UnreadObject
from kimi_proxy.core.jsonrpc import RpcCall
from kimi_proxy.core.lines import encode_text
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.prune import Options, Origin, Question
from kimi_proxy.features import gateway, masking, recovery
from kimi_proxy.features.gateway import CLOSED, CallGoal, CallStats, CircuitBreaker, PathArgument
from kimi_proxy.features.masking import Long, MaskCut, MaskPlan, ViewPlan
from kimi_proxy.features.pruning.kinds import type_of
from kimi_proxy.features.pruning.room import MOST, SHARE
from kimi_proxy.features.recovery import Recover
from kimi_proxy.features.tool import validate
from kimi_proxy.features.tool_words import ListedTool, ToolWords
from kimi_proxy.proxy.local_server import local_url
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.fail_open import FailOpen
from kimi_proxy.services.gateway.clients import McpClients
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.originals import Keeper, MaskedText, ToolOrigin, key_of
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.settings import ObserveMode
from kimi_proxy.services.store.protocols import Originals

TOOLS_REMEMBERED, TOOLS_COMPARED = 10_000, 1000  # of all servers, and of one list
PLANS_REMEMBERED, PLANNED_CHARS = 1000, 2 * 1024**2
FIRST_AIM = 0.8  # of the most that may stay: the rest is for markers
MIN_ROOM = 1_000  # tokens that may stay of a text, if it is pruned for a goal
# How much longer than its CPU time a prune may take by the clock: agents run builds, so cores are shared.
BUSY_FACTOR = 10
AT_ONCE = 256
MAX_TOOL_CHARS = 200  # of a tool's name in the note of an original
KEEP_S, KEEP_EACH_S = 5.0, 0.005  # for an answer and for each text of it: it does not wait longer for the disk

OwnPruner: TypeAlias = Callable[[Caller, JsonObject], Awaitable[JsonObject | None]]

log = logging.getLogger(__name__)


EVENT = "gateway_event"
_INTRODUCTIONS = frozenset({"initialize", "server/discover", "tools/list"})


class GatewayFields(TypedDict):
    """The fields of a `gateway_event`."""

    server: str
    outcome: str
    ms: NotRequired[int]
    ids: NotRequired[list[str]]
    texts: NotRequired[int]
    chars: NotRequired[int]


class Gateway:
    def __init__(
        self,
        config: Config,
        originals: Originals,
        pruner: Pruner,
        metrics: Metrics,
        env: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
        publish: Publish = no_op,
        mode: ObserveMode | None = None,
    ) -> None:
        self.servers, self._is_own_pruner = _with_own_pruner(config)
        self.own_pruner: OwnPruner | None = None  # by JSON-RPC; the server that offers it sets it
        self.mode = mode or ObserveMode()
        self.named = config.named_servers
        self._switched_on = self.servers.switched_on()
        self.clients = McpClients(self.servers, os.environ if env is None else env, config.team.enabled, now)
        self.call_stats: defaultdict[str, CallStats] = defaultdict(CallStats)
        self._originals = originals
        self._keeper = Keeper(originals)
        self.recovery = Recovery(originals, metrics)
        self._pruner = pruner
        self._metrics = metrics
        self._fail_open = FailOpen("answer not masked", self._count_uncut)
        self._now = now
        self._publish = publish
        self._circuits: dict[tuple[str, str], CircuitBreaker] = {}  # by server, and by person if each has a process
        self._listed_tools: dict[str, frozenset[str]] = {}  # the names of each server's own tools
        self._tool_digests: dict[tuple[str, str], bytes] = {}
        # By scope, text, limits and goal: to choose from 100 KB takes ten times as long as the rest of a call.
        self._planned: LruCache[tuple[str, str, MaskingSettings, str], Long] = LruCache(
            PLANS_REMEMBERED, max_bytes=PLANNED_CHARS
        )
        self._background: set[asyncio.Task[object]] = set()
        self._planning = threading.Lock()  # long texts are planned in threads

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        await self.clients.close()

    def run_in_background(self, work: Coroutine[object, object, object]) -> asyncio.Task[object]:
        """Run `work`, which nobody may wait for; it ends with the gateway."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def tool_words(self, tools: Sequence[ListedTool]) -> list[ToolWords]:
        """Return the words by which tools are found."""
        return await self._pruner.tool_words(tools)

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget a person's newest texts, which belong to no session: they are planned again when they come again."""
        with self._planning:
            self._planned.forget_matching(lambda place: place[0] == who.scope)

    async def handle_rpc(self, who: Caller, server_name: str, request_json: JsonValue) -> JsonValue:
        """Return the response to a request, a notification (None) or a batch; errors are responses too."""
        if not isinstance(request_json, list):
            return await self._response(who, server_name, request_json)
        try:
            return await jsonrpc.answer_all(request_json, partial(self._response, who, server_name)) or None
        except InvalidRequest as e:
            return jsonrpc.failure_of(None, e)

    async def _response(self, who: Caller, server_name: str, message: JsonValue) -> JsonObject | None:
        try:
            return await self.answer(who, server_name, message)
        except KimiProxyError as e:
            return jsonrpc.failure_of(jsonrpc.id_of(message), e, who)

    async def answer(self, who: Caller, server_name: str, message: JsonValue) -> JsonObject | None:
        """Return the response to one message, None where none is due; our errors are raised."""
        server = self.check(server_name)
        call = jsonrpc.read(message)
        if call is None or not isinstance(message, dict):
            return None  # a response: we asked nothing
        if call.method == "tools/call":
            if self._is_recovery(server_name, server, call):
                return await self._recover(who, message, call)
            gateway.check_call(server, call)
        await _check_paths(server.root, call)
        received = await self._forward(who, server_name, message)
        if received is None:
            return None
        answer = received
        if call.method in _INTRODUCTIONS:
            is_short = not isinstance(received.get("result"), UnreadObject)
            answer = await aside(is_short, self._introduce, server_name, server, call, received)

        def leave_whole(code: WarningCode) -> JsonObject:
            self._publish(who, EVENT, GatewayFields(server=server_name, outcome="uncut"))
            return answer

        # The call has happened: a fault of ours must not make the agent repeat it.
        shorter = self._shorten_answer(who, server_name, server, call, answer)
        return await self._fail_open.run(server_name, shorter, leave_whole)

    def check(self, name: str) -> McpServer:
        """Return the server of that name; raise UnknownServer if there is none."""
        if name not in self._switched_on:
            raise UnknownServer(name, self.servers.names)
        return self._switched_on[name]

    async def apply_observation_masking(
        self, who: Caller, payload: JsonValue, limits: MaskingSettings | None = None, server_name: str = ""
    ) -> JsonValue:
        """Return `payload` with its long strings masked, wherever they are in it; what cannot be kept stays whole."""
        return await self._mask(who, server_name, limits or MaskingSettings(), payload)

    def blocked_for(self, name: str, person: str = "") -> float:
        """Return the seconds until a server that failed too often is tried again; 0 if it may be now."""
        return self._circuits.get((name, person), CLOSED).blocked_for(self._now())

    def reset_circuit(self, name: str) -> None:
        """Forget a server's failures: it is known to be there again."""
        self._circuits = {place: each for place, each in self._circuits.items() if place[0] != name}

    def _count_uncut(self, server: str, code: WarningCode) -> None:
        self._metrics.gateway_masked.labels(server, code).inc()

    # Our recovery tool, offered in addition to the server's own tools.

    def _is_recovery(self, server_name: str, server: McpServer, call: RpcCall) -> bool:
        return server.masking.enabled and gateway.tool_name(call) in self._free_recovery_names(server_name)

    def _free_recovery_names(self, server_name: str) -> list[str]:
        """Return the names that our recovery tool may have, the best one first; none if the server has them all."""
        taken = self._listed_tools.get(server_name, ())
        return [name for name in (recovery.NAME, recovery.SPARE_NAME) if name not in taken]

    async def _recover(self, who: Caller, message: JsonObject, call: RpcCall) -> JsonObject:
        arguments = call.params.get("arguments")
        is_error = False
        try:
            asked = validate(Recover, arguments if isinstance(arguments, dict) else {})
            text = (await self.recovery.read(who, asked.id, recovery.selection_of(asked))).text
        except KimiProxyError as e:
            # A model reads the text of a result; of an error it may see the code alone.
            text = f"{e.code}: {e.explain(who)}"
            is_error = True
        result: JsonObject = {"content": [{"type": "text", "text": text}], "isError": is_error}
        if mcp.is_stateless(message):
            result = mcp.stamp_result("tools/call", result, mcp.OURSELVES)
        return jsonrpc.success(jsonrpc.id_of(message), result)

    def _introduce(self, name: str, server: McpServer, call: RpcCall, answer: JsonObject) -> JsonObject:
        """Return what a server says of itself, or the list of its tools, with our tool.

        A list that cannot be filtered is refused: it may hold tools that the settings do not allow.
        """
        result = answer.get("result")
        result = dict(result) if isinstance(result, UnreadObject) else result
        shown: JsonValue = result
        if call.method == "tools/list":
            self._compare_tools(ALIASES.get(name, name), result)
            shown = self._with_recovery_tool(name, server, call, result)
        elif server.masking.enabled and not self.mode.is_on:
            shown = gateway.with_tools_capability(result)
        return answer if shown is result else {**answer, "result": shown}

    def _with_recovery_tool(self, name: str, server: McpServer, call: RpcCall, result: JsonValue) -> JsonValue:
        """Return the list of the server's tools that may be called, with our own on the last page."""
        if not isinstance(result, dict) or not isinstance(result.get("tools"), list):
            return result
        tools: list[JsonValue] = list(result["tools"])
        if server.tools:
            tools = [tool for tool in tools if isinstance(tool, dict) and tool.get("name") in server.tools]
        if server.masking.enabled and not self.mode.is_on:
            before = self._listed_tools.get(name, frozenset()) if call.params.get("cursor") else frozenset()
            self._listed_tools[name] = before | {str(tool.get("name")) for tool in tools if isinstance(tool, dict)}
            if not result.get("nextCursor"):
                tools += [recovery.describe_tool(free) for free in self._free_recovery_names(name)[:1]]
        return result if tools == result["tools"] else {**result, "tools": tools}

    # Forward.

    async def _forward(self, who: Caller, server_name: str, message: JsonObject) -> JsonObject | None:
        name = ALIASES.get(server_name, server_name)
        place = name, self.clients.person_of(name, who)
        wait_s = self.blocked_for(*place)
        if wait_s > 0:
            raise UpstreamUnreachable(f"{name} failed too often: the next try is in {wait_s:.1f} s", wait_s)
        began = self._now()
        stats = self.call_stats[name]
        self._circuits[place] = self._circuits.get(place, CLOSED).on_try(began)
        stats.calls += 1
        try:
            answer = await self.send(who, name, message)
        except KimiProxyError as e:
            self._count_failure(who, place, e)
            raise
        stats.took(self._now() - began)
        self._circuits[place] = CLOSED
        self._metrics.gateway_calls.labels(name, "ok").inc()
        took_ms = round((self._now() - began) * 1000)
        self._publish(who, EVENT, GatewayFields(server=name, outcome="ok", ms=took_ms))
        return answer

    async def send(self, who: Caller, name: str, message: JsonObject) -> JsonObject | None:
        """Return the server's response. Our own pruner is called in this process, on behalf of the caller."""
        if name != PRUNER or self.own_pruner is None or not self._is_own_pruner:
            return await self.clients.forward_jsonrpc(name, message, who)
        timeout_s = self._switched_on[name].timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self.own_pruner(who, message)
        except TimeoutError as e:
            raise UpstreamTimeout(f"{name} did not respond within {timeout_s:g} s") from e

    def _count_failure(self, who: Caller, place: tuple[str, str], error: KimiProxyError) -> None:
        """Count a failure. Only a server that cannot be reached gets a rest; one that answers nonsense is there."""
        name = place[0]
        is_down = isinstance(error, UpstreamUnreachable | UpstreamTimeout)
        self._circuits[place] = self._circuits.get(place, CLOSED).on_failure(self._now()) if is_down else CLOSED
        self._metrics.gateway_calls.labels(name, error.code).inc()
        self._publish(who, EVENT, GatewayFields(server=name, outcome=error.code))
        self.call_stats[name].failures += 1
        self.call_stats[name].on_failure(error.code, error.full, self._now())
        log.warning("mcp server failed", extra={"server": name, "code": error.code, "what": error.full[:300]})

    def _compare_tools(self, name: str, result: JsonValue) -> None:
        """Log a changed tool: a server that rewrites a tool's description may be attacking the agent."""
        listed = result.get("tools") if isinstance(result, dict) else None
        for tool in listed[:TOOLS_COMPARED] if isinstance(listed, list) else []:
            place = (name, str(tool.get("name"))[:200] if isinstance(tool, dict) else "")
            now = sha256(json.encode(tool)).digest()
            if len(self._tool_digests) > TOOLS_REMEMBERED:
                self._tool_digests.clear()
            if self._tool_digests.setdefault(place, now) != now:
                self._tool_digests[place] = now
                log.warning("mcp tool changed", extra={"server": name, "tool": place[1]})

    # Prune and mask, originals first.

    async def _shorten_answer(
        self, who: Caller, name: str, server: McpServer, call: RpcCall, answer: JsonObject
    ) -> JsonObject:
        """Return the server's answer as the agent sees it; unchanged, it is the same object."""
        error = answer.get("error")
        result = answer.get("result")
        if isinstance(error, dict) and "data" in error:
            data = await self._mask(who, name, server.masking, error["data"])
            return answer if data is error["data"] else {**answer, "error": {**error, "data": data}}
        if not isinstance(result, dict | list | str | UnreadObject) or not gateway.is_maskable(call):
            return answer
        goal = gateway.goal_of(call)
        shown = await self._mask(who, name, server.masking, result, server.pruning, goal, gateway.tool_name(call))
        return answer if shown is result else {**answer, "result": shown}

    async def _mask(
        self,
        who: Caller,
        name: str,
        limits: MaskingSettings,
        value: JsonValue,
        pruning: PruningSettings | None = None,
        goal: CallGoal | None = None,
        tool: str = "",
    ) -> JsonValue:
        if not limits.enabled:
            return value
        about = goal.text if goal is not None else ""
        budget_s = (pruning or PruningSettings()).timeout_ms / 1000
        shown: dict[str, str] = {}
        if pruning is not None and pruning.enabled and goal is not None and not self.mode.is_on:
            texts = await aside(masking.is_small(value), masking.long_texts, value, limits)
            shown = await self._prune_texts(who, pruning, goal, texts, ToolOrigin(name, tool[:MAX_TOOL_CHARS]))
        plan_all = partial(self._plan, who, value, limits, about, budget_s, shown)
        plan = await aside(masking.is_small(value), plan_all)
        cuts = {cut.text: cut for cut in plan.cuts}
        if not cuts:
            return value
        if self.mode.is_on:
            self._count_observed(who, name, list(cuts.values()))
            return value
        # No text is replaced by a marker before its original is on disk.
        ids = await self._keep(who, name, tool, [cut for text, cut in cuts.items() if text not in shown])
        shown |= {text: cuts[text].render(id) for text, id in ids.items()}
        return masking.apply(plan, shown)

    def _plan(
        self,
        who: Caller,
        value: JsonValue,
        limits: MaskingSettings,
        goal: str,
        cpu_s: float,
        pruned: Mapping[str, str],
    ) -> MaskPlan | ViewPlan:
        """Plan within so much CPU time; where it is over, texts keep their head and tail. May run in any thread.

        What was pruned needs no other choice.
        """
        end = time.thread_time() + cpu_s

        def check() -> None:
            if time.thread_time() >= end:
                raise TimeoutError

        def plan_once(text: str) -> Long | None:
            if text in pruned:
                return MaskCut(text, ())
            place = who.scope, text, limits, goal
            with self._planning:
                known = self._planned.get(place)
            made = known or masking.plan_text(text, limits, goal, check)
            if made is not None and known is None:
                with self._planning:
                    self._planned.put(place, made, len(text))
            return made

        return masking.plan(value, limits, plan_once)

    def _count_observed(self, who: Caller, name: str, cuts: Sequence[MaskCut]) -> None:
        """Publish what would have been masked, and store nothing."""
        chars = sum(len(cut.text) - len(cut.render(new_id("msk"))) for cut in cuts)
        about: JsonObject = {"server": name, "outcome": "observed", "texts": len(cuts), "chars": chars}
        self._publish(who, "gateway_event", about)

    async def _prune_texts(
        self, who: Caller, settings: PruningSettings, goal: CallGoal, texts: Sequence[str], origin: ToolOrigin
    ) -> dict[str, str]:
        """Return the pruned form of each text that could be pruned for the goal."""
        pruned: dict[str, str] = {}
        for text in texts:
            shorter = await self._prune_text(who, settings, goal, text, origin)
            if shorter is not None:
                pruned[text] = shorter
        return pruned

    async def _prune_text(
        self, who: Caller, settings: PruningSettings, goal: CallGoal, text: str, origin: ToolOrigin
    ) -> str | None:
        """Return `text` pruned to a fifth, and at most 7,000 tokens; None if it cannot be pruned.

        The limits of the settings hold unless they would keep more than that.
        """
        before = await aside(len(text) <= masking.SMALL_CHARS, tokens.count, text)
        room = min(MOST, max(MIN_ROOM, int(SHARE * before)))
        kind = await aside(len(text) <= masking.SMALL_CHARS, type_of, Origin(path=goal.source), text)
        ratio = settings.max_prune_ratio
        keep = settings.min_keep_lines
        if (1 - ratio) * before > MOST:
            ratio, keep = 1 - FIRST_AIM * MOST / before, 1
        options = Options(ratio, keep, BUSY_FACTOR * settings.timeout_ms, False, True)
        question = Question(text, goal.text, kind, options, room=room)
        answer = await self._pruner.prune(who, question, cpu_s=settings.timeout_ms / 1000, origin=origin)
        return answer.pruned.text if answer.pruned.annotations else None

    async def _keep(self, who: Caller, server_name: str, tool: str, cuts: Sequence[MaskCut]) -> Mapping[str, str]:
        """Return the ids of the texts that are on disk; texts that could not be stored are sent uncut."""
        kept: dict[str, str] = {}
        try:
            async with asyncio.timeout(KEEP_S + KEEP_EACH_S * len(cuts)):
                for some in in_batches(cuts, AT_ONCE):  # together, so that they share the store's commits
                    await asyncio.gather(*(self._keep_one(who, server_name, tool, cut, kept) for cut in some))
        except (StoreUnavailable, TimeoutError) as e:
            log.warning(
                "answer not masked: the store is unavailable", extra={"server": server_name, "what": str(e)[:300]}
            )
            self._metrics.gateway_masked.labels(server_name, "recovery_unavailable").inc(len(cuts) - len(kept))
        self._metrics.gateway_masked.labels(server_name, "masked").inc(len(kept))
        if kept:
            fields: GatewayFields = {
                "server": server_name,
                "ids": list(kept.values()),
                "outcome": "masked",
                "texts": len(kept),
                "chars": sum(map(len, kept)),
            }
            self._publish(who, EVENT, fields)
        self.call_stats[ALIASES.get(server_name, server_name)].count_masked(kept)
        return kept

    async def _keep_one(self, who: Caller, server_name: str, tool: str, cut: MaskCut, kept: dict[str, str]) -> None:
        kept[cut.text] = await self._keep_original(who, server_name, tool, cut)

    async def _keep_original(self, who: Caller, server_name: str, tool: str, cut: MaskCut) -> str:
        """Return the id of a text on disk: the same text gets the same id again, as long as that one lives."""
        text = cut.text
        raw, key = await aside(len(text) <= HASHED_BYTES, _key_of, text)
        found = await self._originals.find(who, key)
        if found is not None:
            return found
        # The note is used later to show people which part of the text was sent.
        server = self._switched_on.get(server_name)
        limits = cut.limits or (server.masking if server else MaskingSettings())
        mask_id = new_id("msk")
        source = MaskedText(server_name, len(text), text.count("\n") + 1, limits, cut.goal, tool[:MAX_TOOL_CHARS])
        await self._keeper.keep(who, mask_id, key, raw, source)
        return mask_id


def _key_of(text: str) -> tuple[bytes, bytes]:
    """Return a text in its stored form, and its lookup key."""
    raw = encode_text(text)
    return raw, key_of("mask", raw)


async def _check_paths(root: str, call: RpcCall) -> None:
    """Raise CallRefused if a path in the message leads out of the server's root, links followed."""
    paths = list(gateway.paths_of(call)) if root else []
    escape = await asyncio.to_thread(_first_escape, root, paths) if paths else None
    if escape is not None:
        raise CallRefused(
            "path",
            f"the argument {escape.name!r} is outside the workspace {root}: {escape.path[:200]!r}. "
            "Use a path inside it.",
        )


def _first_escape(root: str, arguments: Sequence[PathArgument]) -> PathArgument | None:
    real_root = os.path.realpath(Path(root).expanduser())
    for argument in arguments:
        try:
            whole = Path(real_root) / Path(argument.path).expanduser()
            # Servers may resolve `..` before or after they follow links: neither may lead out.
            places = (os.path.realpath(whole), os.path.realpath(os.path.normpath(whole)))
        except (OSError, ValueError, RuntimeError):
            return argument
        if not all(gateway.is_inside(place, real_root) for place in places):
            return argument
    return None


def _with_own_pruner(config: Config) -> tuple[McpSettings, bool]:
    """Return the servers, with our pruner where it really listens, and whether the pruner is ours."""
    known = config.mcp.servers[PRUNER]
    where = config.mcp_pruner
    if known.url != McpSettings().servers[PRUNER].url:
        return config.mcp, False
    ours = known.model_copy(update={"url": Address(f"{local_url(where.host, where.port)}/rpc")})
    return config.mcp.model_copy(update={"servers": {**config.mcp.servers, PRUNER: ours}}), True
