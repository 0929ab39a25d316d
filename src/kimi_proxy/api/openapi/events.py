"""The events of `/ws`, as types."""

from typing import Literal, NotRequired, TypedDict

from kimi_proxy.services.pruner import DeepInfraFields
from kimi_proxy.services.serialize import MemoryMetricBody, MetricBody, SessionBody, SinkAlertBody, WindowAlertBody
from kimi_proxy.services.sessions import Snapshot


class EventFields(TypedDict):
    seq: int
    at: str
    owner: NotRequired[str]  # whose it is, where an admin of a team sees that of another: person/ada


class InitEvent(EventFields, Snapshot):
    type: Literal["init"]


class SessionEvent(EventFields):
    type: Literal["session_created", "session_renamed"]
    session: SessionBody


class SessionDeletedEvent(EventFields):
    type: Literal["session_deleted"]
    session_id: str | None


class MetricEvent(EventFields):
    type: Literal["metric", "metric_updated"]
    metric: MetricBody


class ContextAlertEvent(EventFields, WindowAlertBody):
    type: Literal["context_alert"]


class BudgetAlertEvent(EventFields):
    type: Literal["budget_alert"]
    budget: str
    level: Literal["near", "used"]
    percent: int
    per: Literal["day", "month"]
    hard: bool
    requests: int
    usd: float


class MemoryEvent(EventFields, MemoryMetricBody):
    type: Literal["memory_metrics_update"]


class RequestEventFields(EventFields):
    """Of events that a stage reports: whose request it was."""

    session_id: str
    request_id: str


class AttentionSinkEvent(EventFields, SinkAlertBody):
    type: Literal["attention_sink_alert"]


class ReinjectedEvent(RequestEventFields):
    type: Literal["instructions_reinjected"]
    tokens: int
    buried_tokens: int
    distance: int | None


_Route = TypedDict("_Route", {"from": str, "to": str})


class RoutedFields(RequestEventFields, _Route):
    tokens: int
    asked_max_context: int
    asked_percent: float | None
    max_context: int
    percent: float | None


class ModelRoutedEvent(RoutedFields):
    type: Literal["model_routed"]
    new: bool


class RoutingUnavailableEvent(RoutedFields):
    type: Literal["routing_unavailable"]
    reason: str


class MemoryInjectedEvent(RequestEventFields):
    type: Literal["memory_injected"]
    tokens: int


class CompressionPaidEvent(RequestEventFields):
    type: Literal["compression_paid"]
    summary_input_tokens: int
    summary_output_tokens: int


class SanitizerEvent(RequestEventFields):
    type: Literal["sanitizer_event"]
    outputs: int
    cut: int
    cut_now: int
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    why: dict[str, int]
    tool_tokens: int
    prefix_tokens_resent: int


class CompressionEvent(EventFields):
    """A history was compressed, with its figures, or with "event": "undone" brought back."""

    type: Literal["compression_event"]
    session_id: str
    undone: bool | str
    request_id: NotRequired[str]
    event: NotRequired[Literal["undone"]]
    active: NotRequired[str | None]
    compression_id: NotRequired[str]
    kind: NotRequired[str]
    automatic: NotRequired[bool]
    original_tokens: NotRequired[int]
    compressed_tokens: NotRequired[int]
    tokens_saved: NotRequired[int]
    compression_ratio: NotRequired[float]
    summary_by: NotRequired[str]
    original_id: NotRequired[str]
    messages_removed: NotRequired[int]
    messages_kept: NotRequired[int]
    summary_input_tokens: NotRequired[int]
    summary_output_tokens: NotRequired[int]


class ModelUnknownEvent(EventFields):
    type: Literal["model_unknown"]
    provider: str
    model: str
    lines: str


class LogCountEvent(EventFields):
    type: Literal["log_count"]
    source: str
    session_id: str | None
    tokens: int
    max_context: int | None
    percent: float | None
    counted_by: Literal["log"]


class PruneEvent(EventFields, DeepInfraFields):
    type: Literal["prune_event"]
    prune_id: str | None
    outcome: Literal["pruned", "untouched", "fallback", "observed"]
    original_lines: int
    pruned_lines: int
    tokens_est_before: int
    tokens_est_after: int
    door: NotRequired[Literal["hooks"]]
    kept_lines: NotRequired[int]
    pruned_ratio: NotRequired[float]
    elapsed_ms: NotRequired[int]
    used_fallback: NotRequired[bool]
    backend: NotRequired[str]
    tokens_saved_est: NotRequired[int]


class SettingsEvent(EventFields):
    type: Literal["settings_event"]
    switches: dict[str, bool]


class GatewayEvent(EventFields):
    type: Literal["gateway_event"]
    server: str
    outcome: str
    ms: NotRequired[int]
    ids: NotRequired[list[str]]
    texts: NotRequired[int]
    chars: NotRequired[int]


class GapEvent(TypedDict):
    type: Literal["gap"]
    seq: int
    missed: int


EVENTS: tuple[object, ...] = (
    InitEvent,
    SessionEvent,
    SessionDeletedEvent,
    MetricEvent,
    ContextAlertEvent,
    BudgetAlertEvent,
    MemoryEvent,
    AttentionSinkEvent,
    ReinjectedEvent,
    ModelRoutedEvent,
    RoutingUnavailableEvent,
    MemoryInjectedEvent,
    CompressionPaidEvent,
    SanitizerEvent,
    CompressionEvent,
    ModelUnknownEvent,
    LogCountEvent,
    PruneEvent,
    SettingsEvent,
    GatewayEvent,
    GapEvent,
)
