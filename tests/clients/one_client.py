"""A program for an environment that has the 1.x line of the client: talks to a URL or a command, prints what it saw."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import McpError


async def converse(session: ClientSession, question: dict[str, object]) -> dict[str, object]:
    hello = await session.initialize()
    await session.send_ping()
    tools = await session.list_tools()
    pruned = await session.call_tool("prune_text", question)
    answer = json.loads(pruned.content[0].text)
    ranges = [{"start_line": 1, "end_line": 300}]
    asked = {"prune_id": answer["prune_id"], "ranges": ranges, "include_line_numbers": False}
    recovered = await session.call_tool("recover_text", asked)
    try:
        wrong = await session.call_tool("recover_text", {**asked, "prune_id": "prn_0123456789abcdef"})
        mistake = wrong.content[0].text if wrong.isError else "none"
    except McpError as e:
        mistake = f"{e.error.code} {e.error.message}"
    return {
        "version": hello.protocolVersion,
        "server": hello.serverInfo.name,
        "tools": [tool.name for tool in tools.tools],
        "same": answer == pruned.structuredContent,
        "annotations": len(answer["annotations"]),
        "raw_text": json.loads(recovered.content[0].text)["raw_text"],
        "prompts": (await session.list_prompts()).prompts,
        "resources": (await session.list_resources()).resources,
        "mistake": mistake,
    }


async def main() -> None:
    question = json.load(sys.stdin)
    target, *arguments = sys.argv[1:]
    if target.startswith("http"):
        async with streamable_http_client(target) as (read, write, _), ClientSession(read, write) as session:
            print(json.dumps(await converse(session, question)))
    else:
        home = {"KIMI_PROXY_HOME": os.environ["KIMI_PROXY_HOME"]}
        command = StdioServerParameters(command=target, args=arguments, env=home)
        async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
            print(json.dumps(await converse(session, question)))


asyncio.run(main())
