"""The features that are off by default, each with the line that turns it on."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class OptIn:
    """A feature is on as soon as one of its `settings` has a value; one without settings is turned on in the client."""

    name: str
    effect: str
    turn_on: str  # a line for config.toml, as "[section] key = value", or a command
    settings: tuple[str, ...] = ()

    def is_on(self, config: BaseModel) -> bool:
        values = [_value(config, name.split(".")) for name in self.settings]
        return any(bool(value) and value != AUTO for value in values)


AUTO = "auto"  # on only where nothing speaks against it


def _value(section: BaseModel, path: Sequence[str]) -> object:
    value: object = section
    for name in path:
        value = getattr(value, name)
    return value


OPT_IN = (
    OptIn(
        "project memory",
        "adds your saved notes about the project to each new session",
        "[memory] inject = true",
        ("memory.inject",),
    ),
    OptIn(
        "re-injection",
        "repeats the system prompt at the end of a request once it is far from the end",
        "[reinjection] enabled = true",
        ("reinjection.enabled",),
    ),
    OptIn(
        "log watcher",
        "reads token counts from the logs of Continue and Kimi in your home folder",
        "[log_watcher] enabled = true",
        ("log_watcher.enabled",),
    ),
    OptIn(
        "memory server",
        "gives Continue the reference memory server, which npx downloads",
        "kimi-proxy init continue --memory",
    ),
    OptIn(
        "built-in MCP servers",
        "run sequential-thinking, fast-filesystem, json-query or task-master, which npx downloads",
        "kimi-proxy mcp up NAME",
        ("mcp.built_in",),
    ),
    OptIn(
        "automatic compression",
        "compresses a session before its context window is full; the model writes the summary",
        "[compression] automatic = true",
        ("compression.automatic",),
    ),
    OptIn(
        "deferred tools",
        "leaves rarely used tools out of requests until the model searches for them",
        '[deferred_tools] clients = ["*"]',
        ("deferred_tools.clients", "deferred_tools.tools"),
    ),
    OptIn(
        "clear thinking",
        "asks Anthropic to drop the thinking of earlier turns, of all its models, when none of it is cached",
        "[cache] clear_thinking = true",
        ("cache.clear_thinking",),
    ),
)
