"""The MCP servers behind the gateway: one long-lived client for each."""

from kimi_proxy.proxy.mcp.upstreams import Client, Upstreams

__all__ = ["Client", "Upstreams"]
