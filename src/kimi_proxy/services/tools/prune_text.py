"""`prune_text`: the lines of a text that matter for a goal."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Literal, NotRequired, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from kimi_proxy import __version__
from kimi_proxy.core import json
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.mcp import PRUNER_SERVER
from kimi_proxy.core.prune import SOURCE_TYPES, Options, Question, SourceType
from kimi_proxy.features.pruning.model import Scorers, load_scorers
from kimi_proxy.features.tool import Integer, Tool, ToolAnswer
from kimi_proxy.services.originals import ToolOrigin
from kimi_proxy.services.pruner import Pruner

DESCRIPTION = """\
Shorten a text (code, logs or docs) to the lines that matter for goal_hint, without rewriting any of them.
Each block that was cut is listed in annotations and, with include_markers, replaced by one line:
⟦PRUNÉ: prune_id=<id> lignes <start>-<end> (<count>) raison=<reason>⟧
Line numbers are 1-based and those of the original. Pass the id and the numbers to recover_text to read the lines \
again, exactly as they were; an id lives for days after it was last used, and survives restarts. Do not write a text \
with markers back to its source. max_prune_ratio and min_keep_lines are hard limits; when they cannot be met, or \
anything fails, the text comes back whole and warnings says why."""

_OPTIONS: JsonObject = {
    "max_prune_ratio": {"type": "number", "minimum": 0, "maximum": 1},
    "min_keep_lines": {"type": "integer", "minimum": 0},
    "timeout_ms": {"type": "integer", "minimum": 1},
    "annotate_lines": {"type": "boolean"},
    "include_markers": {"type": "boolean"},
}
SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "goal_hint": {"type": "string"},
        "source_type": {"type": "string", "enum": list(SOURCE_TYPES)},
        "options": {
            "type": "object",
            "properties": _OPTIONS,
            "required": list(_OPTIONS),
            "additionalProperties": False,
        },
    },
    "required": ["text", "goal_hint", "source_type", "options"],
    "additionalProperties": False,
}

HUGE = 2**53  # whole numbers beyond this mean the same as this


class PruneOptions(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    max_prune_ratio: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    min_keep_lines: Annotated[Integer, Field(ge=0)]
    timeout_ms: Annotated[Integer, Field(ge=1)]
    annotate_lines: bool
    include_markers: bool

    def plain(self) -> Options:
        return Options(
            self.max_prune_ratio,
            min(self.min_keep_lines, HUGE),
            min(self.timeout_ms, HUGE),
            self.annotate_lines,
            self.include_markers,
        )


class PruneText(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    text: str
    goal_hint: str
    source_type: SourceType
    options: PruneOptions


ORIGIN = ToolOrigin("pruner", "prune_text")


def tool(pruner: Pruner) -> Tool[PruneText]:
    async def prune_text(who: Caller, asked: PruneText) -> ToolAnswer:
        question = Question(asked.text, asked.goal_hint, asked.source_type, asked.options.plain())
        answer = json.as_object((await pruner.prune(who, question, origin=ORIGIN)).json())
        return ToolAnswer(json.encode(answer).decode(), answer)

    return Tool("prune_text", DESCRIPTION, SCHEMA, PruneText, prune_text, title="Prune a text")


HEALTH_DESCRIPTION = "Say whether the pruner is up, its version and what it can do."
HEALTH_SCHEMA: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}


class Health(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _local_time() -> datetime:
    return datetime.now().astimezone()


class PrunerHealthBody(TypedDict):
    status: Literal["healthy"]
    server: str
    version: str
    capabilities: list[str]
    timestamp: str
    scorer: NotRequired[str]  # why the learned model is not used; pruning still works
    store: NotRequired[str]  # over HTTP, and only while the store is not well


async def check_health(
    now: Callable[[], datetime] = _local_time, scorers: Callable[[], Scorers] = load_scorers
) -> PrunerHealthBody:
    fault = (await asyncio.to_thread(scorers)).fault
    body: PrunerHealthBody = {
        "status": "healthy",
        "server": PRUNER_SERVER,
        "version": __version__,
        "capabilities": ["prune_text", "recover_text", "annotations", "markers"],
        "timestamp": now().isoformat(timespec="seconds"),
    }
    if fault:
        body["scorer"] = fault
    return body


def health_tool(check: Callable[[], Awaitable[PrunerHealthBody]] = check_health) -> Tool[Health]:
    async def health(who: Caller, asked: Health) -> ToolAnswer:
        answer = json.as_object(await check())
        return ToolAnswer(json.encode(answer).decode(), answer)

    return Tool("health", HEALTH_DESCRIPTION, HEALTH_SCHEMA, Health, health, title="Pruner health")
