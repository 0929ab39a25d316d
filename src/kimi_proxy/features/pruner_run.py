"""The life of a run beside its tools as a table: from each state, what may happen, where it leads, what is logged."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    INIT = "run:init"
    STARTING = "run:mcp_pruner_starting"
    RUNNING = "run:mcp_pruner_running"
    DISABLED = "run:mcp_pruner_disabled"
    DEGRADED = "run:mcp_pruner_degraded"
    SHUTDOWN = "run:shutdown"


class Event(StrEnum):
    SWITCHED_OFF = "JEEVES_MCP_PRUNER_ENABLED=false"
    INVALID_CONFIG = "invalid configuration"
    SWITCHED_ON = "JEEVES_MCP_PRUNER_ENABLED=true"
    HEALTHY = "health check succeeds before timeout"
    SPAWN_FAILED = "spawn fails"
    EXITED = "child process exits"
    START_TIMEOUT = "health check timeout"
    GIVEN_UP = "the run ends, or its folder cannot be written, before the server is ready"
    UNREACHABLE = "N consecutive connect failures"
    PHASE_ENDED = "provider phase ends"
    REFUSED_TO_EXIT = "server refuses to exit within shutdown_timeout_ms"


@dataclass(frozen=True, slots=True)
class Transition:
    to: State
    logs: tuple[str, ...] = ()


_S, _E = State, Event

TRANSITIONS: Mapping[tuple[State, Event], Transition] = {
    (_S.INIT, _E.SWITCHED_OFF): Transition(_S.DISABLED, ("mcp_pruner.disabled",)),
    (_S.INIT, _E.INVALID_CONFIG): Transition(_S.DISABLED, ("mcp_pruner.config_invalid",)),
    (_S.INIT, _E.SWITCHED_ON): Transition(_S.STARTING),
    (_S.STARTING, _E.HEALTHY): Transition(_S.RUNNING, ("mcp_pruner.ready",)),
    (_S.STARTING, _E.SPAWN_FAILED): Transition(_S.DISABLED, ("mcp_pruner.spawn_error", "mcp_pruner.start_failed")),
    (_S.STARTING, _E.EXITED): Transition(_S.DISABLED, ("mcp_pruner.exited", "mcp_pruner.start_failed")),
    (_S.STARTING, _E.START_TIMEOUT): Transition(_S.DISABLED, ("mcp_pruner.start_timeout", "mcp_pruner.start_failed")),
    (_S.STARTING, _E.GIVEN_UP): Transition(_S.DISABLED, ("mcp_pruner.start_failed",)),
    (_S.RUNNING, _E.EXITED): Transition(_S.DEGRADED, ("mcp_pruner.exited", "mcp_pruner.degraded")),
    (_S.RUNNING, _E.UNREACHABLE): Transition(_S.DEGRADED, ("mcp_pruner.unreachable", "mcp_pruner.degraded")),
    (_S.RUNNING, _E.PHASE_ENDED): Transition(_S.SHUTDOWN, ("mcp_pruner.stopped",)),
    (_S.DISABLED, _E.PHASE_ENDED): Transition(_S.SHUTDOWN, ("mcp_pruner.not_running",)),
    (_S.DEGRADED, _E.PHASE_ENDED): Transition(_S.SHUTDOWN, ("mcp_pruner.shutdown_after_degraded",)),
    (_S.SHUTDOWN, _E.REFUSED_TO_EXIT): Transition(_S.SHUTDOWN, ("mcp_pruner.kill_escalated",)),
}
