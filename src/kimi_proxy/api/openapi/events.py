"""The frames of `/ws`: the fields that each event is published with, and its name, number and time."""

from typing import Literal, NotRequired, TypedDict

from kimi_proxy.features.context import ReinjectedFields
from kimi_proxy.features.memory import MemoryInjectedFields
from kimi_proxy.features.metering import LogCountFields
from kimi_proxy.features.models.routing import ModelRoutedFields, RoutingUnavailableFields
from kimi_proxy.features.sanitizer.stage import SanitizerFields
from kimi_proxy.services.chat.compression import CompressionEventFields, UndoneFields
from kimi_proxy.services.chat.models import UnknownModelBody
from kimi_proxy.services.chat.summaries import SummaryCost
from kimi_proxy.services.gateway import GatewayFields
from kimi_proxy.services.journal import DeletedFields, MetricFields, SessionFields
from kimi_proxy.services.pruner import PruneFields
from kimi_proxy.services.serialize import MemoryMetricBody, SinkAlertBody, WindowAlertBody
from kimi_proxy.services.sessions import Snapshot
from kimi_proxy.services.settings import SwitchedFields
from kimi_proxy.services.team.budgets import BudgetAlert


class Frame(TypedDict):
    seq: int
    at: str
    owner: NotRequired[str]  # whose it is, where an admin of a team sees that of another: person/ada


class StageFrame(Frame):
    """Of events that a stage reports: whose request it was."""

    session_id: str
    request_id: str


class InitEvent(Frame, Snapshot):
    type: Literal["init"]


class SessionEvent(Frame, SessionFields):
    type: Literal["session_created", "session_renamed"]


class SessionDeletedEvent(Frame, DeletedFields):
    type: Literal["session_deleted"]


class MetricEvent(Frame, MetricFields):
    type: Literal["metric", "metric_updated"]


class ContextAlertEvent(Frame, WindowAlertBody):
    type: Literal["context_alert"]


class BudgetAlertEvent(Frame, BudgetAlert):
    type: Literal["budget_alert"]


class MemoryEvent(Frame, MemoryMetricBody):
    type: Literal["memory_metrics_update"]


class AttentionSinkEvent(Frame, SinkAlertBody):
    type: Literal["attention_sink_alert"]


class ReinjectedEvent(StageFrame, ReinjectedFields):
    type: Literal["instructions_reinjected"]


class ModelRoutedEvent(StageFrame, ModelRoutedFields):
    type: Literal["model_routed"]


class RoutingUnavailableEvent(StageFrame, RoutingUnavailableFields):
    type: Literal["routing_unavailable"]


class MemoryInjectedEvent(StageFrame, MemoryInjectedFields):
    type: Literal["memory_injected"]


class CompressionPaidEvent(StageFrame, SummaryCost):
    type: Literal["compression_paid"]


class SanitizerEvent(StageFrame, SanitizerFields):
    type: Literal["sanitizer_event"]


class CompressionEvent(Frame, CompressionEventFields):
    type: Literal["compression_event"]
    request_id: NotRequired[str]  # of one that was made by itself


class UndoneEvent(Frame, UndoneFields):
    type: Literal["compression_event"]


class ModelUnknownEvent(Frame, UnknownModelBody):
    type: Literal["model_unknown"]


class LogCountEvent(Frame, LogCountFields):
    type: Literal["log_count"]


class PruneEvent(Frame, PruneFields):
    type: Literal["prune_event"]


class SettingsEvent(Frame, SwitchedFields):
    type: Literal["settings_event"]


class GatewayEvent(Frame, GatewayFields):
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
