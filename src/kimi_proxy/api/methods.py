"""The methods of MCP, written once for every era."""

import time
from collections.abc import Awaitable, Callable

from kimi_proxy.api.catalog import Catalog
from kimi_proxy.api.errors import advice
from kimi_proxy.core.errors import InvalidParams, KimiProxyError
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.tool import Answer, AnyTool

Method = Callable[[Catalog, JsonObject], Awaitable[JsonObject]]

# Lists that stay empty are declared all the same: to serve what wasn't declared breaks the protocol.
CAPABILITIES: JsonObject = {"tools": {"listChanged": False}, "resources": {}, "prompts": {}}


def initialize(versions: tuple[str, ...]) -> Method:
    async def agree(catalog: Catalog, params: JsonObject) -> JsonObject:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if isinstance(asked, str) and asked in versions else versions[0],
            "capabilities": CAPABILITIES,
            "serverInfo": catalog.info(),
            "instructions": catalog.instructions,
        }

    return agree


def discover(versions: tuple[str, ...]) -> Method:
    async def introduce(catalog: Catalog, params: JsonObject) -> JsonObject:
        return {
            "supportedVersions": versions,
            "capabilities": CAPABILITIES,
            "instructions": catalog.instructions,
        }

    return introduce


async def ping(catalog: Catalog, params: JsonObject) -> JsonObject:
    return {}


async def list_tools(catalog: Catalog, params: JsonObject) -> JsonObject:
    return {"tools": catalog.listing()}


def empty(key: str) -> Method:
    async def list_none(catalog: Catalog, params: JsonObject) -> JsonObject:
        return {key: []}

    return list_none


def nothing_at(field: str, kind: str) -> Method:
    async def refuse(catalog: Catalog, params: JsonObject) -> JsonObject:
        raise NotOffered(field, kind, params.get(field))

    return refuse


class NotOffered(InvalidParams):
    """A resource or a prompt of a server that has none."""

    def __init__(self, field: str, kind: str, asked: JsonValue) -> None:
        super().__init__(field, f"this server has no {kind}")
        self.asked = asked

    def data(self) -> JsonObject:
        return {**super().data(), self.field: self.asked}


async def call_tool(catalog: Catalog, params: JsonObject) -> JsonObject:
    """Run a tool; what is wrong with the call is an error of the protocol."""
    tool, arguments = _chosen(catalog, params)
    return _rendered(await _observed(catalog, tool, arguments))


async def call_tool_kindly(catalog: Catalog, params: JsonObject) -> JsonObject:
    """Run a tool; what is wrong with its arguments is told to the model, which can mend them."""
    tool, arguments = _chosen(catalog, params)
    try:
        answer = await _observed(catalog, tool, arguments)
    except KimiProxyError as e:
        answer = Answer(advice(e), is_error=True)
    return _rendered(answer)


def direct(name: str) -> Method:
    async def call(catalog: Catalog, params: JsonObject) -> JsonObject:
        arguments = {key: value for key, value in params.items() if key != "_meta"}
        return _bare(await _observed(catalog, catalog.tool(name), arguments))

    return call


def _chosen(catalog: Catalog, params: JsonObject) -> tuple[AnyTool, JsonObject]:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str):
        raise InvalidParams("name", "must be the name of a tool")
    if not isinstance(arguments, dict | None):
        raise InvalidParams("arguments", "must be an object")
    return catalog.tool(name), arguments or {}


async def _observed(catalog: Catalog, tool: AnyTool, arguments: JsonObject) -> Answer:
    start, outcome = time.perf_counter(), "failed"
    try:
        answer = await tool.call(arguments)
        outcome = "error" if answer.is_error else "ok"
    except KimiProxyError as e:
        outcome = e.code
        raise
    finally:
        catalog.observe(tool.name, outcome, time.perf_counter() - start)
    return answer


def _rendered(answer: Answer) -> JsonObject:
    result: JsonObject = {"content": [{"type": "text", "text": answer.text}], "isError": answer.is_error}
    if answer.structured is not None:
        result["structuredContent"] = answer.structured
    if answer.meta:
        result["_meta"] = answer.meta
    return result


def _bare(answer: Answer) -> JsonObject:
    """The tool's own object, without the wrapping of MCP."""
    return {"text": answer.text} if answer.structured is None else answer.structured
