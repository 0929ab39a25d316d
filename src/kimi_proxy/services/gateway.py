"""The gateway at work: its servers, what it keeps, and whom it leaves alone for a while."""

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from kimi_proxy.core import deepjson, jsontext
from kimi_proxy.core.config import Config
from kimi_proxy.core.errors import (
    KimiProxyError,
    PruneIdNotFound,
    StoreUnavailable,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from kimi_proxy.core.ids import is_id, new_id
from kimi_proxy.core.prune import Options, Question
from kimi_proxy.core.servers import ALIASES, PRUNER, Masking, Mcp, Pruning
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features import masking, paths, source_type
from kimi_proxy.features.circuit import CLOSED, Circuit
from kimi_proxy.features.gateway import Goal, MCPGatewayService, Outside
from kimi_proxy.features.masking import Plan
from kimi_proxy.features.paths import PathArgument
from kimi_proxy.proxy.mcp import Upstreams
from kimi_proxy.services.fingerprint import decoded, encoded
from kimi_proxy.services.hub import Publish, unheard
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.store import Original, Store
from kimi_proxy.services.tally import Tally

SCOPE = "local"
TOOLS_REMEMBERED = 10_000
SHORT_CHARS = 250_000
KEEP_S = 5.0  # an answer does not wait longer for the disk

log = logging.getLogger(__name__)


class Gateway:
    """What `features/gateway.py` decides, done."""

    def __init__(
        self,
        config: Config,
        store: Store,
        pruner: Pruner,
        metrics: Metrics,
        env: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
        publish: Publish = unheard,
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
            now = sha256(deepjson.encode(tool)).digest()
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
        note = jsontext.encode({"what": "mask", "server": server_name, **self._mask_note(server_name, text)})
        await self._store.keep(Original(mask_id, SCOPE, key, raw, note))
        return mask_id

    def _mask_note(self, server_name: str, text: str) -> JsonObject:
        """By which a person can be shown later what was left of the text."""
        server = self.servers.server(server_name)
        limits = server.masking if server else Masking()
        return {"chars": len(text), "lines": text.count("\n") + 1, "limits": limits.model_dump(exclude={"enabled"})}

    async def _prune(self, settings: Pruning, goal: Goal, texts: Sequence[str]) -> Mapping[str, str]:
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


async def _plan(value: JsonValue, limits: Masking) -> Plan:
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
        if not all(paths.is_inside(place, real_root) for place in places):
            return argument
    return None


def _with_own_pruner(config: Config) -> tuple[Mcp, Mapping[str, Mapping[str, str]]]:
    """The servers, with our pruner where it really listens, and the headers that it wants from us.

    Nobody else gets our token: an address that the file names is somebody else's.
    """
    known, where = config.mcp.servers[PRUNER], config.mcp_pruner
    if known.url != Mcp().servers[PRUNER].url:
        return config.mcp, {}
    ours = known.model_copy(update={"url": f"http://{reachable(where.host)}:{where.port}/rpc"})
    token = {} if config.token is None else {"authorization": f"Bearer {config.token.get_secret_value()}"}
    return config.mcp.model_copy(update={"servers": {**config.mcp.servers, PRUNER: ours}}), {PRUNER: token}


def reachable(host: str) -> str:
    """`host` as somebody on this machine would address it."""
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - whoever listens everywhere listens here too
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
