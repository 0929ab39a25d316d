"""The MCP tools, one file each."""
