"""The MCP servers behind the gateway: one long-lived client for each."""
