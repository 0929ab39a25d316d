"""Everything alive, built in one function and ended in the reverse order."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from kimi_proxy.core.config import Config
from kimi_proxy.features.pipeline import Step
from kimi_proxy.features.tool import AnyTool
from kimi_proxy.services.chat import Chat
from kimi_proxy.services.chat_door import chat_door
from kimi_proxy.services.compressions import Compressions
from kimi_proxy.services.cuts import Cuts
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.hub import Hub
from kimi_proxy.services.latest import Latest
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.project_memory import ProjectMemory
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.reranking import Rerank
from kimi_proxy.services.sanitizer import Sanitizer
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.settings import Settings
from kimi_proxy.services.store import Store, open_store
from kimi_proxy.services.supervisor import Supervisor
from kimi_proxy.services.tools import health, prune_text, recover_text
from kimi_proxy.services.tools.agent import agent_tools
from kimi_proxy.services.workers import Workers


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
    latest: Latest
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
        pruner = Pruner(settings, store, workers, rerank, metrics, publish=hub.publish)
        gateway = Gateway(config, store, pruner, metrics, publish=hub.publish)
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
            agent_tools=await alive.enter_async_context(agent_tools(config, store, pruner, os.environ)),
            cuts=Cuts(store, store.pinboard, pruner),
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
    tools = (prune_text.tool(pruner), recover_text.tool(pruner), health.tool())
    by_name: dict[str, AnyTool] = {}
    for tool in tools:
        for name in (tool.name, *tool.aliases):
            by_name[name] = tool
    return by_name


async def _reranker(config: Config, alive: AsyncExitStack) -> Rerank | None:
    if config.mcp_pruner.backend != "deepinfra":
        return None
    # Only who opted in pays the quarter of a second that the HTTP client takes to load.
    from kimi_proxy.proxy.reranker import Reranker

    reranker = Reranker(config.mcp_pruner.deepinfra_endpoint_url, config.deepinfra_api_key)
    alive.push_async_callback(reranker.close)
    return reranker
