"""Arguments that a tool of the stateless era wants to see in headers too: its schema marks them `x-mcp-header`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kimi_proxy.core.types import JsonObject, JsonValue

MARK = "x-mcp-header"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_KINDS = ("string", "integer", "boolean")


class BadMirror(Exception):
    """A mark that no header can follow: the tool has to be left out."""


@dataclass(frozen=True, slots=True)
class Mirror:
    """An argument, by the keys that lead to it, and the header that repeats it."""

    path: tuple[str, ...]
    header: str

    def value(self, arguments: JsonValue) -> str | None:
        found = arguments
        for key in self.path:
            found = found.get(key) if isinstance(found, Mapping) else None
        if isinstance(found, bool):
            return "true" if found else "false"
        return str(found) if isinstance(found, str | int) else None


def read(schema: JsonValue) -> tuple[Mirror, ...]:
    """The marked arguments of a tool; BadMirror if a mark is not where or what it may be."""
    mirrors = tuple(_marked(schema))
    names = [mirror.header.lower() for mirror in mirrors]
    if len(set(names)) != len(names) or _count(schema) != len(names):
        raise BadMirror
    return mirrors


def _marked(schema: JsonValue) -> Iterator[Mirror]:
    """Only what is reached through `properties` alone is an argument of a known place."""
    rest: list[tuple[tuple[str, ...], JsonValue]] = [((), schema)]
    while rest:
        path, node = rest.pop()
        properties = node.get("properties") if isinstance(node, Mapping) else None
        for key, inner in properties.items() if isinstance(properties, Mapping) else ():
            rest.append(((*path, key), inner))
            if isinstance(inner, Mapping) and MARK in inner:
                name = inner[MARK]
                if not isinstance(name, str) or not _TOKEN.fullmatch(name) or inner.get("type") not in _KINDS:
                    raise BadMirror
                yield Mirror((*path, key), f"mcp-param-{name}")


def _count(schema: JsonValue) -> int:
    """How many marks there are anywhere, examples and defaults left out."""
    rest: list[JsonValue] = [schema]
    marks = 0
    while rest:
        node = rest.pop()
        if isinstance(node, Mapping):
            marks += isinstance(node.get(MARK), str)
            rest.extend(item for key, item in node.items() if key not in ("default", "examples", "const", "enum"))
        elif isinstance(node, list):
            rest.extend(node)
    return marks


class Mirrors:
    """What the tools of one server want mirrored, as far as their list has been seen."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[Mirror, ...]] = {}

    def knows(self, tool: str) -> bool:
        return tool in self._tools

    def learn(self, answer: JsonObject) -> JsonObject:
        """Note the tools of a `tools/list`; those that cannot be called by the book are left out of it."""
        result = answer.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not isinstance(tools, list):
            return answer
        usable = [tool for tool in tools if self._note(tool)]
        return answer if len(usable) == len(tools) else {**answer, "result": {**result, "tools": usable}}

    def headers(self, message: JsonObject) -> dict[str, str]:
        """The values to repeat for a `tools/call`."""
        params = message.get("params")
        given = params if isinstance(params, Mapping) else {}
        arguments = given.get("arguments")
        values = {m.header: m.value(arguments) for m in self._tools.get(str(given.get("name")), ())}
        return {header: value for header, value in values.items() if value is not None}

    def _note(self, tool: JsonValue) -> bool:
        if not isinstance(tool, dict):
            return True
        try:
            self._tools[str(tool.get("name"))] = read(tool.get("inputSchema"))
        except BadMirror:
            return False
        return True
