"""Everything alive, built in one function and ended in the reverse order."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_proxy.core.config import Config
from kimi_proxy.features.compression import presets
from kimi_proxy.features.models import Models
from kimi_proxy.features.pipeline import Step
from kimi_proxy.features.tool import AnyTool
from kimi_proxy.services.chat.compression import Compressor, Summaries
from kimi_proxy.services.chat.compressions import AutoCompression, Compressions
from kimi_proxy.services.chat.context import LatestRequests, Reinjection
from kimi_proxy.services.chat.counting import TokenCounter
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.handler import Chat, RateLimiter, together
from kimi_proxy.services.chat.log_watcher import LogWatcher
from kimi_proxy.services.chat.memory import ProjectMemory
from kimi_proxy.services.chat.recall import Recall
from kimi_proxy.services.chat.recorder import Recorder
from kimi_proxy.services.chat.routing import Routing, Scale
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.cuts import Cuts
from kimi_proxy.services.events import Hub
from kimi_proxy.services.gateway import Gateway, reachable
from kimi_proxy.services.journal import Journal
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.pruner import Pruner, Rerank
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.settings import Service, Settings
from kimi_proxy.services.store import Store, open_store
from kimi_proxy.services.supervisor import Supervisor
from kimi_proxy.services.tools import prune_text, recover_text
from kimi_proxy.services.tools.agent import agent_tools
from kimi_proxy.services.workers import Workers

if TYPE_CHECKING:
    from kimi_proxy.proxy.upstream import Upstreams


REMEMBER_S = 60.0  # what was decided about outputs is looked up so often


@dataclass(frozen=True, slots=True)
class ChatDoor:
    chat: Chat
    steps: Sequence[Step]
    sanitizer: Sanitizer
    sessions: Sessions
    latest: LatestRequests
    compressions: Compressions
    memory: ProjectMemory
    switches: Mapping[str, Service]  # what may be switched while it runs, by its name in the file


@asynccontextmanager
async def chat_door(
    config: Config, store: Store, workers: Workers, metrics: Metrics, hub: Hub
) -> AsyncIterator[ChatDoor]:
    async with AsyncExitStack() as alive:
        upstreams, turns = await _upstreams(config, alive), RateLimiter(config.providers)
        counting = TokenCounter()
        alive.callback(counting.close)
        decisions = ChatDecisions(
            store.originals, store.decisions, min(REMEMBER_S, config.mcp_pruner.prune_id_ttl_s / 10)
        )
        summaries = Summaries(upstreams, turns, metrics, config.compression.summary_timeout_s)
        usual, light = presets(config.compression, config.compaction)
        models = Models(config.providers, config.models)

        # What may change a request on its way, in this order.
        memory = ProjectMemory(config.home, config.memory, store.decisions, store.sessions)
        sanitizer = Sanitizer(config.sanitizer, _address(config), decisions, workers, metrics)
        compressor = Compressor(
            *(config.models, counting, store.originals, store.decisions, summaries),
            *(config.sanitizer.recover_tool, hub.publish),
            owed=decisions.owed,
        )
        automatic = AutoCompression(config.compression, usual, compressor, store.sessions)
        reinjection = Reinjection(config.reinjection, models, counting)
        routing = Routing(config.sanitizer.routing, models, counting, store.decisions, Scale(store.sessions))
        steps = (memory, sanitizer, compressor, automatic, reinjection, routing)

        # Who looks on while it passes.
        journal = Journal(store.sessions, config.models, counting, metrics, hub.publish)
        alive.push_async_callback(journal.close)
        logs = LogWatcher(config.log_watcher, hub.publish)
        alive.push_async_callback(logs.close)
        recorder = Recorder(config.record, config.home, config.models)
        alive.push_async_callback(recorder.close)
        latest = LatestRequests(counting, compressor.window_of)
        began = together(journal.began, logs.began, latest.began, recorder.began)

        recall = Recall(store.originals, decisions, metrics, config.sanitizer.recover_rounds)
        sessions = Sessions(store.sessions, journal, (compressor.forget, latest.forget), logged=logs.beats)
        yield ChatDoor(
            chat=Chat(config, upstreams, metrics, began, steps=steps, recall=recall, turns=turns),
            steps=steps,
            sanitizer=sanitizer,
            sessions=sessions,
            latest=latest,
            compressions=Compressions(compressor, sessions, store.sessions, usual, light),
            memory=memory,
            switches={
                "sanitizer.enabled": sanitizer,
                "sanitizer.routing.heavy_duty_fallback": routing,
                "memory.inject": memory,
                "reinjection.enabled": reinjection,
                "compression.automatic": automatic,
            },
        )


def _address(config: Config) -> str:
    """Where people find the proxy."""
    return f"http://{reachable(config.proxy.host)}:{config.proxy.port}"


async def _upstreams(config: Config, alive: AsyncExitStack) -> "Upstreams | None":
    if not any(provider.enabled for provider in config.providers.values()):
        return None
    # Only who has a provider pays the third of a second that its client takes to load.
    from kimi_proxy.proxy.upstream import Upstreams

    upstreams = Upstreams(config.providers, config.provider_keys, config.token)
    alive.push_async_callback(upstreams.close)
    return upstreams


@dataclass(frozen=True, slots=True)
class Runtime:
    config: Config
    store: Store
    pruner: Pruner
    tools: Mapping[str, AnyTool]  # by name, and by every alias
    metrics: Metrics
    gateway: Gateway
    supervisor: Supervisor  # of the MCP servers that we run; it rests until it is started
    hub: Hub
    agent_tools: Mapping[str, AnyTool]  # read, grep and bash
    cuts: Cuts
    settings: Settings
    chat: Chat
    steps: Sequence[Step]  # everything that may change a chat request on its way
    sanitizer: Sanitizer
    sessions: Sessions
    latest: LatestRequests
    compressions: Compressions
    project_memory: ProjectMemory


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Runtime]:
    settings, metrics, hub = config.mcp_pruner, Metrics(), Hub()
    async with AsyncExitStack() as alive:
        store = await open_store(config.home, ttl_s=settings.prune_id_ttl_s, max_bytes=config.store.max_bytes)
        alive.push_async_callback(store.close)
        workers = Workers()
        alive.push_async_callback(workers.close)
        rerank = await _reranker(config, alive)
        pruner = Pruner(settings, store.originals, workers, rerank, metrics, publish=hub.publish)
        gateway = Gateway(config, store.originals, pruner, metrics, publish=hub.publish)
        alive.push_async_callback(gateway.close)
        supervisor = Supervisor(gateway)
        alive.push_async_callback(supervisor.close)
        door = await alive.enter_async_context(chat_door(config, store, workers, metrics, hub))
        yield Runtime(
            config=config,
            store=store,
            pruner=pruner,
            tools=_tools(pruner),
            metrics=metrics,
            gateway=gateway,
            supervisor=supervisor,
            hub=hub,
            agent_tools=await alive.enter_async_context(agent_tools(config, store.originals, pruner, os.environ)),
            cuts=Cuts(store.originals, store.decisions, pruner),
            settings=Settings(config, door.switches, os.environ, hub.publish),
            chat=door.chat,
            steps=door.steps,
            sanitizer=door.sanitizer,
            sessions=door.sessions,
            latest=door.latest,
            compressions=door.compressions,
            project_memory=door.memory,
        )


def _tools(pruner: Pruner) -> Mapping[str, AnyTool]:
    tools = (prune_text.tool(pruner), recover_text.tool(pruner), prune_text.health_tool())
    by_name: dict[str, AnyTool] = {}
    for tool in tools:
        for name in (tool.name, *tool.aliases):
            by_name[name] = tool
    return by_name


async def _reranker(config: Config, alive: AsyncExitStack) -> Rerank | None:
    if config.mcp_pruner.backend != "deepinfra":
        return None
    # Only who opted in pays the quarter of a second that the HTTP client takes to load.
    from kimi_proxy.proxy.pruners import Reranker

    reranker = Reranker(config.mcp_pruner.deepinfra_endpoint_url, config.deepinfra_api_key)
    alive.push_async_callback(reranker.close)
    return reranker
