"""The three tools for agents, built from the settings."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from kimi_proxy.core.config import Config
from kimi_proxy.core.config.sections import ToolSettings
from kimi_proxy.features.tool import AnyTool
from kimi_proxy.proxy.files import workspace
from kimi_proxy.proxy.search import ripgrep
from kimi_proxy.services.originals import Keeper
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.store.protocols import Originals
from kimi_proxy.services.tools import bash, grep, read
from kimi_proxy.services.tools.pruning import pruning

COMMANDS_AT_ONCE = 16
READS_AT_ONCE = 8


@asynccontextmanager
async def agent_tools(
    config: Config,
    originals: Originals,
    pruner: Pruner,
    env: Mapping[str, str],
    find_ripgrep: Callable[[str | None], str | None] = ripgrep,
) -> AsyncIterator[Mapping[str, AnyTool]]:
    """Yield read and grep by name, and bash where there are process groups to end."""
    settings = config.tools
    keeper = Keeper(originals)
    is_chosen = bool(settings.cwd or settings.roots)
    space = workspace(_cwd(settings.cwd), settings.roots, (config.home,), settings.denied_names, is_chosen)
    # One command may fill half of the store's room, not push out all that others keep there.
    spool_bytes = min(settings.max_output_bytes, config.store.max_bytes // 2)
    async with AsyncExitStack() as stack:
        # Separate threads: a long command must not block reading a file, nor a long search a prune.
        threads = ThreadPoolExecutor(COMMANDS_AT_ONCE, thread_name_prefix="command")
        reading = ThreadPoolExecutor(READS_AT_ONCE, thread_name_prefix="read")
        for pool in (threads, reading):
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        endpoint = None
        if settings.pruner_endpoint:
            # Only users who opted in pay the quarter of a second that the HTTP client takes to load.
            from kimi_proxy.proxy.pruners import SwePruner

            endpoint = SwePruner(settings.pruner_endpoint.get_secret_value())
            stack.push_async_callback(endpoint.close)
        how = pruning(settings, pruner, keeper, endpoint)
        rg = find_ripgrep(env.get("PATH"))
        tools: list[AnyTool] = [
            read.tool(space, keeper, how, reading, settings.max_tokens),
            grep.tool(space, how, env, rg, reading),
        ]
        if os.name == "posix":
            tools.append(bash.tool(settings, space, keeper, how, env, spool_bytes, threads))
        yield {tool.name: tool for tool in tools}


def over_http(tools: Mapping[str, AnyTool], settings: ToolSettings) -> Mapping[str, AnyTool]:
    """Return the tools that may be offered on a port; commands only if the user switched that on."""
    if not settings.enabled:
        return {}
    return {name: tool for name, tool in tools.items() if name != "bash" or settings.bash_over_http}


def _cwd(named: str) -> Path:
    return Path(named).expanduser() if named else Path.cwd()
