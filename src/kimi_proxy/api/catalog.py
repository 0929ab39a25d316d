"""What a server offers: who it is, and its tools."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.tool import AnyTool

Observe = Callable[[str, str, float], None]  # tool, outcome, seconds


def unobserved(tool: str, outcome: str, seconds: float) -> None:
    """Nobody counts."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """A named registry; an alias is a further key of the same tool, and isn't listed."""

    name: str
    version: str
    instructions: str
    tools: Mapping[str, AnyTool]
    observe: Observe = unobserved
    ends_with_caller: bool = False  # calls are dropped when their caller hangs up, in every era

    def info(self) -> JsonObject:
        return {"name": self.name, "version": self.version}

    def listing(self) -> list[JsonObject]:
        """The tools as clients see them, in the registry's own order."""
        return [_described(tool) for name, tool in self.tools.items() if name == tool.name]

    def tool(self, name: str) -> AnyTool:
        found = self.tools.get(name)
        if found is None:
            raise InvalidParams("name", f"no tool {name[:80]!r} here; there are {', '.join(self.tools)}")
        return found


def _described(tool: AnyTool) -> JsonObject:
    described: JsonObject = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.schema,
        "annotations": {"readOnlyHint": tool.read_only},
    }
    return {**described, "title": tool.title} if tool.title else described
