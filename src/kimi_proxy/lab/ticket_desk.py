"""The MCP server of the demo: a ticket desk on standard input and output, with long answers."""

from random import Random

from pydantic import BaseModel

from kimi_proxy import __version__
from kimi_proxy.api.mcp import Catalog
from kimi_proxy.api.mcp.stdio import serve_stdio
from kimi_proxy.api.server import run
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.tool import Tool, ToolAnswer
from kimi_proxy.lab import demo_texts
from kimi_proxy.lab.demo_day import TOOLS

SEED = 1147


class Subject(BaseModel):
    about: str = ""


class Chapter(BaseModel):
    chapter: str = ""


def catalog() -> Catalog:
    async def find_tickets(who: Caller, asked: Subject) -> ToolAnswer:
        return ToolAnswer(demo_texts.tickets(Random(SEED)))  # noqa: S311 - a story, no secret

    async def read_runbook(who: Caller, asked: Chapter) -> ToolAnswer:
        return ToolAnswer(demo_texts.runbook(Random(SEED)))  # noqa: S311

    tools = (
        Tool("find_tickets", TOOLS["find_tickets"], _schema("about"), Subject, find_tickets),
        Tool("read_runbook", TOOLS["read_runbook"], _schema("chapter"), Chapter, read_runbook),
    )
    return Catalog("ticket-desk", __version__, "Tickets and the runbook.", {tool.name: tool for tool in tools})


def _schema(argument: str) -> JsonObject:
    return {"type": "object", "properties": {argument: {"type": "string"}}}


if __name__ == "__main__":
    run(serve_stdio(catalog()))
