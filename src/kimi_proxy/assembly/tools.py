"""The tools without the proxy: only what a client that starts us needs."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kimi_proxy.assembly.store import own_store
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config import Config
from kimi_proxy.features.tool import AnyTool
from kimi_proxy.services.gateway import Gateway
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.pruner import Pruner, reranker
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.tools import prune_text, recover_text
from kimi_proxy.services.tools.agent import agent_tools
from kimi_proxy.services.workers.pool import Workers

if TYPE_CHECKING:
    from kimi_proxy.services.gateway.tool_directory import ToolDirectory


@dataclass(frozen=True, slots=True)
class ToolsRuntime:
    """The pruner with its tools, and read, grep and bash, each by name and by every alias."""

    pruner: Pruner
    tools: Mapping[str, AnyTool]
    agent_tools: Mapping[str, AnyTool]
    caller: Caller  # whom they work for


@asynccontextmanager
async def running_tools(config: Config, env: Mapping[str, str]) -> AsyncIterator[ToolsRuntime]:
    """Start the store and the pruner, and end them in the reverse order.

    Raise AccessDenied if the store is a team's, and KIMI_PROXY_TOKEN is no one's token.
    """
    async with AsyncExitStack() as alive:
        store, who = await alive.enter_async_context(own_store(config))
        workers = Workers()
        alive.push_async_callback(workers.close)
        rerank = reranker(config)
        if rerank is not None:
            alive.push_async_callback(rerank.close)
        pruner = Pruner(config.mcp_pruner, store.originals, workers, rerank)  # no one could read its counters
        agents = await alive.enter_async_context(agent_tools(config, store.originals, pruner, env))
        yield ToolsRuntime(pruner, pruner_tools(pruner, Recovery(store.originals)), agents, who)


def pruner_tools(pruner: Pruner, recovery: Recovery) -> Mapping[str, AnyTool]:
    """Return the pruner's tools by name, and by every alias."""
    tools = (prune_text.tool(pruner), recover_text.tool(recovery), prune_text.health_tool())
    return {name: tool for tool in tools for name in (tool.name, *tool.aliases)}


@asynccontextmanager
async def running_directory(config: Config, env: Mapping[str, str]) -> AsyncIterator[tuple["ToolDirectory", Caller]]:
    """Start the gateway without a server, and end it and its programs; with whom it works for."""
    from kimi_proxy.services.gateway.tool_directory import ToolDirectory

    async with AsyncExitStack() as alive:
        store, who = await alive.enter_async_context(own_store(config))
        workers = Workers()
        alive.push_async_callback(workers.close)
        pruner = Pruner(config.mcp_pruner, store.originals, workers)
        gateway = Gateway(config, store.originals, pruner, Metrics(), env=env)
        alive.push_async_callback(gateway.close)
        yield ToolDirectory(gateway), who
