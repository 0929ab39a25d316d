"""Our client of Streamable HTTP servers, for the conformance suite to judge: uses whatever the server at URL offers.

python conformance_client.py URL
"""

import asyncio
import json
import os
import sys

from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy.mcp.http import StreamableHttp

PATIENCE_S = 60.0
EXAMPLES: dict[JsonValue, JsonValue] = {"number": 5, "integer": 5, "boolean": True}


async def main(url: str) -> None:
    client = StreamableHttp("conformance", url, PATIENCE_S)

    async def ask(method: str, **params: JsonValue) -> JsonObject:
        message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await client.forward(message, PATIENCE_S) or {}

    try:
        listed = await ask("tools/list")
        for call in calls(listed["result"]["tools"]):  # type: ignore[index,call-overload,arg-type]
            asked = call
            while answered := responses(await ask("tools/call", **asked)):
                asked = {**call, **answered}
        for method, params in (
            ("prompts/list", {}),
            ("resources/list", {}),
            ("resources/read", {"uri": "file:///x"}),
            ("prompts/get", {"name": "test"}),
        ):
            await ask(method, **params)
    finally:
        await client.close()


def responses(answer: JsonObject) -> JsonObject:
    """What an agent would send along if a tool asks back: what it is asked for, and the tool's own state."""
    match answer.get("result"):
        case {"resultType": "input_required", "inputRequests": dict(requests), **rest}:
            answered: JsonValue = {name: {"action": "accept", "content": {"confirmed": True}} for name in requests}
            state = {"requestState": rest["requestState"]} if "requestState" in rest else {}
            return {"inputResponses": answered, **state}
    return {}


def calls(tools: list[dict[str, JsonValue]]) -> list[dict[str, JsonValue]]:
    """What the scenario asks for, else one call of each tool; an echo of schemas gets a schema."""
    told = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")).get("toolCalls")
    if told:
        return told  # type: ignore[no-any-return]
    if any(tool["name"] == "json_schema_echo" for tool in tools):
        shown = next((tool for tool in tools if tool["name"] != "json_schema_echo"), tools[0])
        return [{"name": "json_schema_echo", "arguments": {"schema": shown["inputSchema"]}}]
    return [{"name": tool["name"], "arguments": example(tool["inputSchema"])} for tool in tools]


def example(schema: JsonValue) -> JsonObject:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    given = properties if isinstance(properties, dict) else {}
    return {key: EXAMPLES.get(about.get("type"), "x") for key, about in given.items()}  # type: ignore[union-attr]


asyncio.run(main(sys.argv[-1]))
