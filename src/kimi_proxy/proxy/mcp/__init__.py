"""The MCP servers behind the gateway: one long-lived client for each."""

from kimi_proxy.proxy.mcp.protocol import Client
from kimi_proxy.proxy.mcp.upstreams import Upstreams

__all__ = ["Client", "Upstreams"]
