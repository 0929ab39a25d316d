"""Everything alive, built in one function and ended in the reverse order."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_proxy.core.config import Config
from kimi_proxy.features.compression.preset import presets
from kimi_proxy.features.models import Models
from kimi_proxy.features.pipeline import Step
from kimi_proxy.features.tool import AnyTool
from kimi_proxy.services.auto_compression import AutoCompression
from kimi_proxy.services.chat import Chat
from kimi_proxy.services.compressions import Compressions
from kimi_proxy.services.compressor import Compressor
from kimi_proxy.services.counting import Counting
from kimi_proxy.services.cuts import Cuts
from kimi_proxy.services.decisions import Decisions
from kimi_proxy.services.gateway import Gateway, reachable
from kimi_proxy.services.hub import Hub
from kimi_proxy.services.journal import Journal
from kimi_proxy.services.latest import Latest
from kimi_proxy.services.log_watcher import LogWatcher
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.project_memory import ProjectMemory
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.recall import Recall
from kimi_proxy.services.recorder import Recorder
from kimi_proxy.services.reinjection import Reinjection
from kimi_proxy.services.reranking import Rerank
from kimi_proxy.services.routing import Routing
from kimi_proxy.services.sanitizer import Sanitizer
from kimi_proxy.services.scale import Scale
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.settings import Service, Settings
from kimi_proxy.services.store import Store, open_store
from kimi_proxy.services.summaries import Summaries
from kimi_proxy.services.supervisor import Supervisor
from kimi_proxy.services.tools import health, prune_text, recover_text
from kimi_proxy.services.tools.agent import agent_tools
from kimi_proxy.services.turns import Turns
from kimi_proxy.services.witnesses import together
from kimi_proxy.services.workers import Workers

if TYPE_CHECKING:
    from kimi_proxy.proxy.upstream import Upstreams

REMEMBER_S = 60.0  # what was decided about outputs is looked up so often


@dataclass(frozen=True, slots=True)
class Runtime:
    config: Config
    store: Store
    pruner: Pruner
    tools: Mapping[str, AnyTool]  # by name, and by every alias
    metrics: Metrics
    gateway: Gateway
    supervisor: Supervisor  # of the MCP servers that we run; it rests until it is started
    chat: Chat
    sessions: Sessions
    hub: Hub
    sanitizer: Sanitizer
    agent_tools: Mapping[str, AnyTool]  # read, grep and bash
    compressions: Compressions
    auto_compression: AutoCompression
    latest: Latest
    cuts: Cuts
    settings: Settings
    project_memory: ProjectMemory
    steps: Sequence[Step]  # everything that may change a chat request on its way


@asynccontextmanager
async def running(config: Config) -> AsyncIterator[Runtime]:
    settings, metrics, hub = config.mcp_pruner, Metrics(), Hub()
    async with AsyncExitStack() as alive:
        store = await open_store(config.home, ttl_s=settings.prune_id_ttl_s, max_bytes=config.store.max_bytes)
        alive.push_async_callback(store.close)
        workers = Workers()
        alive.push_async_callback(workers.close)
        rerank = await _reranker(config, alive)
        pruner = Pruner(settings, store, workers, rerank, metrics, publish=hub.publish)
        gateway = Gateway(config, store, pruner, metrics, publish=hub.publish)
        alive.push_async_callback(gateway.close)
        supervisor = Supervisor(gateway)
        alive.push_async_callback(supervisor.close)
        decisions = Decisions(store, store.pinboard, min(REMEMBER_S, settings.prune_id_ttl_s / 10))
        sanitizer = Sanitizer(config.sanitizer, _address(config), decisions, workers, metrics)
        recall = Recall(store, decisions, metrics, config.sanitizer.recover_rounds)
        counting = Counting()
        alive.callback(counting.close)
        journal = Journal(store.ledger, config.models, counting, metrics, hub.publish)
        alive.push_async_callback(journal.close)
        logs = LogWatcher(config.log_watcher, hub.publish)
        alive.push_async_callback(logs.close)
        upstreams, turns = await _upstreams(config, alive), Turns(config.providers)
        usual, light = presets(config.compression, config.compaction)
        summaries = Summaries(upstreams, turns, metrics, config.compression.summary_timeout_s)
        compressor = Compressor(
            *(config.models, counting, store, store.compressions, summaries),
            *(config.sanitizer.recover_tool, hub.publish),
        )
        automatic = AutoCompression(config.compression, usual, compressor, store.ledger)
        latest = Latest(counting, compressor.window_of)
        sessions = Sessions(store.ledger, journal, (compressor.forget, latest.forget), logged=logs.beats)
        compressions = Compressions(compressor, sessions, store.ledger, usual, light)
        models = Models(config.providers, config.models)
        memory = ProjectMemory(config.home, config.memory, store.pinboard, store.ledger)
        reinjection = Reinjection(config.reinjection, models, counting)
        routing = Routing(config.sanitizer.routing, models, counting, store.pinboard, Scale(store.ledger))
        steps = (memory, sanitizer, compressor, automatic, reinjection, routing)
        recorder = Recorder(config.record, config.home, config.models)
        alive.push_async_callback(recorder.close)
        began = together(journal.began, logs.began, latest.began, recorder.began)
        chat = Chat(config, upstreams, metrics, began, steps=steps, recall=recall, turns=turns)
        agents = await alive.enter_async_context(agent_tools(config, store, pruner, os.environ))
        switches: Mapping[str, Service] = {  # what may be switched while it runs, by its name in the file
            "sanitizer.enabled": sanitizer,
            "sanitizer.routing.heavy_duty_fallback": routing,
            "memory.inject": memory,
            "reinjection.enabled": reinjection,
            "compression.automatic": automatic,
        }
        yield Runtime(
            config,
            store,
            pruner,
            _tools(pruner),
            metrics,
            gateway,
            supervisor,
            chat,
            sessions,
            hub,
            sanitizer,
            agents,
            compressions,
            automatic,
            latest,
            Cuts(store, store.pinboard, pruner),
            Settings(config, switches, os.environ, hub.publish),
            memory,
            steps,
        )


def _tools(pruner: Pruner) -> Mapping[str, AnyTool]:
    tools = (prune_text.tool(pruner), recover_text.tool(pruner), health.tool())
    by_name: dict[str, AnyTool] = {}
    for tool in tools:
        for name in (tool.name, *tool.aliases):
            by_name[name] = tool
    return by_name


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


async def _reranker(config: Config, alive: AsyncExitStack) -> Rerank | None:
    if config.mcp_pruner.backend != "deepinfra":
        return None
    # Only who opted in pays the quarter of a second that the HTTP client takes to load.
    from kimi_proxy.proxy.reranker import Reranker

    reranker = Reranker(config.mcp_pruner.deepinfra_endpoint_url, config.deepinfra_api_key)
    alive.push_async_callback(reranker.close)
    return reranker
