"""The JSON of sessions, of their requests, context windows and compressions, as types."""

from typing import Literal, NotRequired, TypedDict


class CompositionBody(TypedDict):
    """Tokens by what they are."""

    system: int
    memory: int
    tools: int
    chat: int


class RequestSums(TypedDict):
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    tokens_saved: int
    cost_usd: float | None
    cost_before_usd: float | None
    net_saved_tokens: int
    net_saved_usd: float | None


class LossesBody(TypedDict, total=False):
    """Tokens that a session cost, by what they were spent on."""

    tool: int
    cache: int
    recovered: int
    summaries: int


class SessionBody(RequestSums):
    """A conversation, and the sums of its requests."""

    id: str
    name: str
    title: str
    provider: str
    model: str
    created_at: str
    last_used_at: str
    parent: str
    directory: str
    person: NotRequired[str]  # in a team
    team: NotRequired[str]
    losses: NotRequired[LossesBody]  # in a list, of a session that cost more than it saved


class SessionsBody(TypedDict):
    sessions: list[SessionBody]
    total: int
    after: str | None


class DeletedBody(TypedDict):
    deleted: int


class QuotaBody(TypedDict):
    """How much of a plan is used, 1.0 being all of it, in a window such as `5h` or `7d`."""

    window: str
    used: float
    resets_at: str | None


class CurrencyBody(TypedDict):
    """The currency in which people read money; amounts in answers are in USD."""

    currency: str
    currency_per_usd: float


class PeriodBody(TypedDict):
    """What was saved, and what that cost, in a period; money is null where no price is known."""

    sessions: int
    requests: int
    tokens_before: int
    tokens_after: int
    cached_tokens: int
    cache_lost_tokens: int
    recoveries: int
    extra_turns: int
    recovery_tokens: int
    summaries: int
    summary_tokens: int
    net_saved_tokens: int
    observed_tokens: int
    cost_before_usd: float | None
    cost_usd: float | None
    net_saved_usd: float | None
    cache_lost_usd: float | None
    overhead_usd: float | None
    cache_missed_usd: float | None
    observed_usd: float | None


class ModelSavings(PeriodBody):
    model: str


class ProjectSavings(PeriodBody):
    directory: str


class PeriodsBody(TypedDict):
    today: PeriodBody
    week: PeriodBody
    month: PeriodBody


class SavingsRange(TypedDict):
    """From the first day to the last, both included."""

    since: str
    until: str
    totals: PeriodBody
    models: list[ModelSavings]
    projects: list[ProjectSavings]


class SavingsBody(TypedDict):
    currency: CurrencyBody
    periods: PeriodsBody
    range: SavingsRange


class MetricBody(TypedDict):
    """A request in answers, events and exports; the figures of its account are null until the answer is over."""

    id: str
    session_id: str
    at: str
    provider: str
    model: str
    api: str
    status: int
    outcome: str
    finish: str
    tokens: int
    counted_by: Literal["provider", "estimate"]
    tokens_estimated: int
    input_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    max_context: int | None
    percent: float | None
    cost_usd: float | None
    first_token_ms: int | None
    duration_ms: int | None
    tokens_saved: int
    reasons: list[str]
    system_tokens: int | None
    memory_tokens: int | None
    tools_tokens: int | None
    chat_tokens: int | None
    memory_ratio: float | None
    tokens_before: int | None
    tokens_after: int | None
    cache_lost_tokens: int | None
    recoveries: int | None
    extra_turns: int | None
    recovery_tokens: int | None
    summaries: int | None
    summary_tokens: int | None
    net_saved_tokens: int | None
    cost_before_usd: float | None
    net_saved_usd: float | None
    cache_lost_usd: float | None
    overhead_usd: float | None
    cache_miss: str | None
    cache_missed_tokens: int | None
    cache_missed_usd: float | None
    cache_life_s: float | None
    cache_miss_detail: str | None
    observed_tokens: int | None  # would have been saved; null unless it was only observed
    observed_usd: float | None
    quota: list[QuotaBody] | None  # of the plan that paid for it


class MetricsBody(TypedDict):
    metrics: list[MetricBody]


class AttentionSinkBody(TypedDict):
    is_sunk: bool
    system_tokens: int
    buried_tokens: int
    distance: int | None
    threshold: float
    reinjected: bool


class SessionHealthBody(TypedDict):
    """How full a session's context window is, and with what."""

    session_id: str
    provider: str
    model: str
    level: Literal["ok", "caution", "warning", "critical", "unknown"]
    percent: float | None
    tokens: int
    max_context: int | None
    counted_by: Literal["provider", "estimate", "log"]
    requests: int
    tokens_saved: int
    reasons: list[str]
    hint: str
    composition: CompositionBody | None
    distribution: list[CompositionBody] | None
    attention_sink: AttentionSinkBody | None


class MemoryKindBody(TypedDict):
    kind: str
    segments: int
    tokens: int
    preview: str


class MemoryContextBody(TypedDict):
    memory_tokens: int
    memory_ratio: float
    kinds: list[MemoryKindBody]


class MemoryMetricBody(TypedDict):
    session_id: str
    request_id: str
    memory_tokens: int
    chat_tokens: int
    memory_ratio: float
    composition: CompositionBody


class MemoryHistoryBody(MemoryMetricBody):
    at: str
    tokens: int


class SessionMemoryBody(TypedDict):
    session_id: str
    memory_context: MemoryContextBody | None
    history: list[MemoryHistoryBody]


class MemoryKindTotals(TypedDict):
    kind: str
    sessions: int
    segments: int
    tokens: int


class MemoryStatsBody(TypedDict):
    requests: int
    requests_with_memory: int
    sessions_with_memory: int
    system_tokens: int
    memory_tokens: int
    tools_tokens: int
    chat_tokens: int
    memory_ratio: float
    kinds: list[MemoryKindTotals]


class ProjectMemoryBody(TypedDict):
    content: object
    updated_at: str | None
    tokens: int
    inject: bool
    path: str
    trouble: NotRequired[str]


class FullnessBody(TypedDict):
    """Why a session is not compressed yet."""

    error: Literal["below_threshold", "window_unknown"]
    current_percentage: float | None
    threshold: float
    hint: str


class CompressionFields(TypedDict):
    compression_id: str
    session_id: str
    at: float
    kind: str
    automatic: bool
    original_tokens: int
    compressed_tokens: int
    tokens_saved: int
    compression_ratio: float
    summary_by: str
    undone: bool
    messages_removed: int


class CompressedBody(CompressionFields):
    original_id: str | None
    summary: str
    messages_kept: int
    summary_input_tokens: NotRequired[int]
    summary_output_tokens: NotRequired[int]
    simulated: NotRequired[bool]


class PastCompressionBody(CompressionFields):
    original_id: str
    summary: str
    undone_at: float | None


class UndoneBody(TypedDict):
    session_id: str
    undone: str
    active: str | None


class CompressionStatsBody(TypedDict):
    threshold: float
    compressions: int
    undone: int
    original_tokens: int
    compressed_tokens: int
    tokens_saved: int
    compression_ratio: float


class SessionCompressionStatsBody(CompressionStatsBody):
    session_id: str
    active: str | None
    history: list[PastCompressionBody]


class ApartBody(TypedDict):
    system_tokens: int
    tool_definitions_tokens: int
    buried: bool


class DescribedToolsBody(TypedDict):
    name: str
    is_server: bool
    tools: int
    tokens: int
    calls: int
    switch_off: str


class SummarizedRowBody(TypedDict):
    index: int
    role: str
    kind: str
    tokens: int
    preview: str


class MessageRowBody(SummarizedRowBody):
    memory_tokens: int
    start_percent: float
    flags: list[str]


class ContextBody(TypedDict):
    """The newest request of a session, message by message."""

    session_id: str
    at: str
    model: str
    max_context: int | None
    tokens: int
    percent: float | None
    composition: CompositionBody
    apart: ApartBody
    described_tools: list[DescribedToolsBody]
    buried: bool
    messages: list[MessageRowBody]
    left_out: int
    summary_index: int | None
    gave_way: list[SummarizedRowBody]


class ContextMessageBody(TypedDict):
    index: int
    role: str
    sent: str
    came: str
    changed: bool
    is_shortened: bool


class SummarizedMessageBody(TypedDict):
    index: int
    role: str
    came: str
    sent: str
    summary_index: int
    is_shortened: bool
