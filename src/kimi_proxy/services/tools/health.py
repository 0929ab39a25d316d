"""`health`: whether the pruner is there, and what it can do."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from kimi_proxy import __version__
from kimi_proxy.core import jsontext
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.pruning.model.installed import Scorers, installed
from kimi_proxy.features.tool import Answer, Tool

SERVER = "mcp-pruner"
DESCRIPTION = "Say whether the pruner is up, its version and what it can do."
SCHEMA: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}


class Health(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _local_time() -> datetime:
    return datetime.now().astimezone()


def tool(now: Callable[[], datetime] = _local_time, scorers: Callable[[], Scorers] = installed) -> Tool[Health]:
    async def health(asked: Health) -> Answer:
        fault = (await asyncio.to_thread(scorers)).fault
        answer: JsonObject = {
            "status": "healthy",
            "server": SERVER,
            "version": __version__,
            "capabilities": ["prune_text", "recover_text", "annotations", "markers"],
            "timestamp": now().isoformat(timespec="seconds"),
            # Without what was learned the pruner still prunes.
            **({"scorer": fault} if fault else {}),
        }
        return Answer(jsontext.encode(answer).decode(), answer)

    return Tool("health", DESCRIPTION, SCHEMA, Health, health, title="Pruner health")
