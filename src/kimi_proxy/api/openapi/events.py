"""The frames of `/ws`: the fields that each event is published with, and its name, number and time."""

from typing import Literal, NotRequired, TypedDict

from kimi_proxy.features.chat.context import ReinjectedFields
from kimi_proxy.features.chat.memory import MemoryInjectedFields
from kimi_proxy.features.metering import LogCountFields
from kimi_proxy.features.models.routing import ModelRoutedFields, RoutingUnavailableFields
from kimi_proxy.features.sanitizer.stage import SanitizerFields
from kimi_proxy.services.chat.models import UnknownModelBody
from kimi_proxy.services.chat.summaries import SummaryCost
from kimi_proxy.services.gateway import GatewayFields
from kimi_proxy.services.journal import DeletedFields, MetricFields, SessionFields
from kimi_proxy.services.pruner import PruneFields
from kimi_proxy.services.serialize import (
    CompressionEventFields,
    MemoryMetricBody,
    SinkAlertBody,
    UndoneFields,
    WindowAlertBody,
)
from kimi_proxy.services.sessions import Snapshot
from kimi_proxy.services.settings import SwitchedFields
from kimi_proxy.services.team.budgets import BudgetAlert


class EventFrame(TypedDict):
    seq: int
    at: str
    owner: NotRequired[str]  # whose it is, where an admin of a team sees that of another: person/ada


class StageEventFrame(EventFrame):
    """Of events that a stage reports: whose request it was."""

    session_id: str
    request_id: str


class InitEvent(EventFrame, Snapshot):
    type: Literal["init"]


class SessionEvent(EventFrame, SessionFields):
    type: Literal["session_created", "session_renamed"]


class SessionDeletedEvent(EventFrame, DeletedFields):
    type: Literal["session_deleted"]


class MetricEvent(EventFrame, MetricFields):
    type: Literal["metric", "metric_updated"]


class ContextAlertEvent(EventFrame, WindowAlertBody):
    type: Literal["context_alert"]


class BudgetAlertEvent(EventFrame, BudgetAlert):
    type: Literal["budget_alert"]


class MemoryEvent(EventFrame, MemoryMetricBody):
    type: Literal["memory_metrics_update"]


class AttentionSinkEvent(EventFrame, SinkAlertBody):
    type: Literal["attention_sink_alert"]


class ReinjectedEvent(StageEventFrame, ReinjectedFields):
    type: Literal["instructions_reinjected"]


class ModelRoutedEvent(StageEventFrame, ModelRoutedFields):
    type: Literal["model_routed"]


class RoutingUnavailableEvent(StageEventFrame, RoutingUnavailableFields):
    type: Literal["routing_unavailable"]


class MemoryInjectedEvent(StageEventFrame, MemoryInjectedFields):
    type: Literal["memory_injected"]


class CompressionPaidEvent(StageEventFrame, SummaryCost):
    type: Literal["compression_paid"]


class SanitizerEvent(StageEventFrame, SanitizerFields):
    type: Literal["sanitizer_event"]


class CompressionEvent(EventFrame, CompressionEventFields):
    type: Literal["compression_event"]
    request_id: NotRequired[str]  # of an automatic one


class UndoneEvent(EventFrame, UndoneFields):
    type: Literal["compression_event"]


class ModelUnknownEvent(EventFrame, UnknownModelBody):
    type: Literal["model_unknown"]


class LogCountEvent(EventFrame, LogCountFields):
    type: Literal["log_count"]


class PruneEvent(EventFrame, PruneFields):
    type: Literal["prune_event"]


class SettingsEvent(EventFrame, SwitchedFields):
    type: Literal["settings_event"]


class GatewayEvent(EventFrame, GatewayFields):
    type: Literal["gateway_event"]


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
    UndoneEvent,
    ModelUnknownEvent,
    LogCountEvent,
    PruneEvent,
    SettingsEvent,
    GatewayEvent,
    GapEvent,
)
