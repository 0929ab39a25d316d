"""What every way to speak to an MCP server offers."""

from typing import Protocol

from kimi_proxy.core.types import JsonObject


class Client(Protocol):
    async def forward(self, message: JsonObject, timeout_s: float) -> JsonObject | None:
        """The answer to a request, under its own id; None for whatever asks for none."""
        ...

    async def close(self) -> None: ...
