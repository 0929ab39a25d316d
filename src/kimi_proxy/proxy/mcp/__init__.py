"""The MCP servers behind the gateway: one long-lived client for each."""

from kimi_proxy.proxy.mcp.clients import McpClients
from kimi_proxy.proxy.mcp.protocol import McpClient

__all__ = ["McpClient", "McpClients"]
