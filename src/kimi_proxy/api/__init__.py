"""The servers: HTTP, WebSocket and stdio. Routes parse, call one service, and answer."""
