"""The gateway's MCP catalog as one server; it loads the engine, which the other catalogs do not need."""

from dataclasses import replace

from kimi_proxy import __version__
from kimi_proxy.api.mcp import Catalog
from kimi_proxy.core.caller import Caller
from kimi_proxy.services.gateway.tool_directory import ToolDirectory, every_tool, search_tools

GATEWAY_INSTRUCTIONS = (
    "The tools of several MCP servers. Find one with search_tools, then call it by its full name with call_read_tool "
    "or call_write_tool. A marker in an answer hides text that recover_text returns, by its id."
)
GATEWAY = Catalog("kimi-proxy-gateway", __version__, GATEWAY_INSTRUCTIONS, {})


async def gateway_catalog(directory: ToolDirectory, who: Caller, lists_all: bool) -> Catalog:
    """Return the tools of all MCP servers: behind a search, or all of them side by side."""
    return replace(GATEWAY, tools=await every_tool(directory, who) if lists_all else search_tools(directory))
