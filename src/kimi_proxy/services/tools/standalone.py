"""The tools without the proxy: what a client that starts us itself waits for, and nothing else."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from kimi_proxy.core.config import Config
from kimi_proxy.features.tool import AnyTool
from kimi_proxy.services.pruner import Pruner, reranker
from kimi_proxy.services.store import open_store, own_store
from kimi_proxy.services.tools import prune_text, recover_text
from kimi_proxy.services.tools.agent import agent_tools
from kimi_proxy.services.workers.pool import Workers


@dataclass(frozen=True, slots=True)
class ToolsRuntime:
    """The pruner with its tools, and read, grep and bash, each by name and by every alias."""

    pruner: Pruner
    tools: Mapping[str, AnyTool]
    agent_tools: Mapping[str, AnyTool]


@asynccontextmanager
async def running_tools(config: Config) -> AsyncIterator[ToolsRuntime]:
    """Start the store and the pruner, and end them in the reverse order."""
    async with AsyncExitStack() as alive:
        ttl_s, max_bytes = config.mcp_pruner.prune_id_ttl_s, config.store.max_bytes
        opened, workers = await open_store(config.home, ttl_s=ttl_s, max_bytes=max_bytes), Workers()
        alive.push_async_callback(opened.close)
        store = await alive.enter_async_context(own_store(config, opened))
        alive.push_async_callback(workers.close)
        rerank = reranker(config)
        if rerank is not None:
            alive.push_async_callback(rerank.close)
        pruner = Pruner(config.mcp_pruner, store.originals, workers, rerank)  # no one could read its counters
        agents = await alive.enter_async_context(agent_tools(config, store.originals, pruner, os.environ))
        yield ToolsRuntime(pruner, pruner_tools(pruner), agents)


def pruner_tools(pruner: Pruner) -> Mapping[str, AnyTool]:
    """Return the pruner's tools by name, and by every alias."""
    tools = (prune_text.tool(pruner), recover_text.tool(pruner), prune_text.health_tool())
    return {name: tool for tool in tools for name in (tool.name, *tool.aliases)}
