"""The agent tools over a folder, with the real pruner and a store that can fall ill."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.fakes import MemoryOriginals
from tests.support.read_back import read_lines

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.tool import AnyTool, ToolAnswer
from kimi_proxy.proxy.search import ripgrep
from kimi_proxy.services.pruner import Pruner
from kimi_proxy.services.store.protocols import Originals
from kimi_proxy.services.tools.agent import agent_tools
from kimi_proxy.services.workers.pool import Workers


@dataclass(frozen=True)
class Toolbox:
    tools: Mapping[str, AnyTool]
    originals: Originals

    async def call(self, name: str, **arguments: JsonValue) -> ToolAnswer:
        return await self.tools[name].call(LOCAL, arguments)

    async def recovered(self, prune_id: str, start: int = 1, end: int = 10**9) -> str:
        return await read_lines(self.originals, prune_id, [(start, end)])


@asynccontextmanager
async def toolbox(
    folder: Path,
    store: Originals | None = None,
    env: Mapping[str, str] | None = None,
    rg: str | None = ripgrep(),
    max_output_bytes: int | None = None,
    **variables: str,
) -> AsyncIterator[Toolbox]:
    """`variables` are settings as the environment names them."""
    toml = f"[tools]\nmax_output_bytes = {max_output_bytes}" if max_output_bytes else ""
    config = parse(toml, {"MCP_PRUNER_CWD": str(folder), **variables}, folder.parent / "state")
    store = store or MemoryOriginals()
    workers = Workers(thread_max_chars=10**9)
    pruner = Pruner(config.mcp_pruner, store, workers)
    try:
        async with agent_tools(config, store, pruner, env or os.environ, lambda path: rg) as tools:
            yield Toolbox(tools, store)
    finally:
        await workers.close()
