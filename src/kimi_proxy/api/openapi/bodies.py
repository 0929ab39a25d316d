"""The JSON that routes answer with, as types: the OpenAPI description is generated from them."""

from typing import Literal, NotRequired, TypedDict

OpenObject = dict[str, object]  # of another program: whatever it holds
RpcMessage = OpenObject | list[OpenObject]  # JSON-RPC: a message, or a batch of them


class RpcResponse(TypedDict):
    jsonrpc: Literal["2.0"]
    id: str | int | float | None
    result: NotRequired[object]
    error: NotRequired[OpenObject]


RpcBody = RpcResponse | list[RpcResponse]


class ErrorDetail(TypedDict):
    code: str
    message: str


class ErrorBody(TypedDict):
    """An error: `code` is for programs and stays, `message` is for people; some codes come with more fields."""

    error: ErrorDetail


class HealthBody(TypedDict):
    status: Literal["healthy"]
    server: str
    version: str
    store: NotRequired[str]  # only while the store is not well


class LiveBody(TypedDict):
    status: Literal["live"]


class ReadyBody(TypedDict):
    status: Literal["ready"]


class StoppingBody(TypedDict):
    status: Literal["stopping"]


class PrunerHealthBody(HealthBody):
    capabilities: list[str]
    timestamp: str
    scorer: NotRequired[str]


class OriginalBody(TypedDict):
    id: str
    original_chars: int
    text: str


class CompressedMessagesBody(TypedDict, total=False):
    """Messages with long tool results cut; of a webhook, its verdict with the request as it should go on."""

    messages: list[OpenObject]
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    compression_ratio: float
    transforms_applied: list[str]
    ccr_hashes: list[str]
    warnings: list[str]
    verdict: bool
    data: OpenObject
    transformedData: OpenObject


class RetrievedBody(TypedDict):
    hash: str
    original_content: str


class SettingsBody(TypedDict):
    """What is in force; of secrets only whether they are set."""

    file: str | None
    switches: dict[str, bool]
    secrets: dict[str, bool]
    settings: OpenObject


class ChangedSettingsBody(SettingsBody):
    saved: bool
    problem: str | None
    problem_code: Literal["no_file", "file_refused", "file_unreadable"] | None


class StoreBody(TypedDict):
    path: str
    state: str
    originals: int
    bytes_on_disk: int
    max_bytes: int
    oldest: float | None
    commits: int
    set_aside: list[str]
    configuration: str | None


class ProviderBody(TypedDict):
    name: str
    enabled: bool
    on_demand: bool
    type: str
    base_url: str
    key: Literal["client", "configured", "missing"]
    models: list[str]


class ProvidersBody(TypedDict):
    providers: list[ProviderBody]


class ModelBody(TypedDict):
    id: str
    provider: str
    model: str
    enabled: bool
    max_context_size: int | None
    input_usd_per_million: float | None
    cached_usd_per_million: float | None
    cache_write_usd_per_million: float | None
    output_usd_per_million: float | None


class UnknownModelBody(TypedDict):
    provider: str
    model: str
    lines: str


class KnownModelBody(TypedDict):
    provider: str
    name: str
    aliases: list[str]
    apis: list[str]
    tokenizer: str
    window: int
    max_output: NotRequired[int]
    input_usd: NotRequired[float]
    cached_usd: NotRequired[float]
    cache_write_usd: NotRequired[float]
    output_usd: NotRequired[float]
    checked: str
    source: str


class ModelsBody(TypedDict):
    models: list[ModelBody]
    unknown: list[UnknownModelBody]
    known: NotRequired[list[KnownModelBody]]


class LimitBody(TypedDict):
    provider: str
    requests_per_minute: float
    wait_s: float


class LimitsBody(TypedDict):
    providers: list[LimitBody]


class MaskedTotals(TypedDict):
    texts: int
    chars: int


class ServerBody(TypedDict):
    """How an MCP server behind the gateway is doing; figures only of one that is not off."""

    name: str
    state: str
    transport: str
    run: bool
    url: NotRequired[str]
    command: NotRequired[str]
    pid: NotRequired[int | None]
    up_s: NotRequired[float]
    restarts: NotRequired[int]
    tools: NotRequired[int | None]
    latency_ms: NotRequired[float | None]
    calls: NotRequired[int]
    failures: NotRequired[int]
    masked: NotRequired[MaskedTotals]
    last_error: NotRequired[str | None]
    last_error_code: NotRequired[str | None]
    last_error_s_ago: NotRequired[float | None]
    retry_in_s: NotRequired[float | None]
    log: NotRequired[str]


class ServersBody(TypedDict):
    servers: list[ServerBody]


class ServerLogBody(TypedDict):
    name: str
    log: str
