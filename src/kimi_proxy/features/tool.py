"""MCP tools, and the states of one request to an agent tool."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Generic, Protocol, TypeVar, get_args

from pydantic import AliasChoices, BaseModel, BeforeValidator, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject, JsonValue

Arguments = TypeVar("Arguments", bound=BaseModel)


def _to_integer(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


# JSON Schema's integer, for strict models: 3.0 is one, true is not.
Integer = Annotated[int, BeforeValidator(_to_integer)]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The answer of a tool: text for the model, and the same as JSON for programs."""

    text: str
    structured: JsonObject | None = None
    is_error: bool = False
    meta: JsonObject = field(default_factory=dict)
    result: JsonObject | None = None  # of another server's tool: it is passed on as it came, in place of all above


@dataclass(frozen=True, slots=True)
class Tool(Generic[Arguments]):
    """A tool as every endpoint offers it. `schema` is what clients see, `arguments` is what we check."""

    name: str
    description: str
    schema: JsonObject
    arguments: type[Arguments]
    function: Callable[[Caller, Arguments], Awaitable[ToolAnswer]]
    title: str = ""
    aliases: tuple[str, ...] = ()
    read_only: bool = True

    async def call(self, who: Caller, arguments: Mapping[str, JsonValue]) -> ToolAnswer:
        """Check `arguments` and run the tool; InvalidParams names the field that is wrong."""
        return await self.function(who, validate(self.arguments, arguments))


class AnyTool(Protocol):
    """A tool whatever its arguments are."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> JsonObject: ...
    @property
    def title(self) -> str: ...
    @property
    def read_only(self) -> bool: ...

    async def call(self, who: Caller, arguments: Mapping[str, JsonValue]) -> ToolAnswer: ...


MAX_PROBLEMS = 10  # that an error names


def validate(model: type[Arguments], arguments: Mapping[str, JsonValue]) -> Arguments:
    """Return `arguments` as the model; raise InvalidParams, which names every field that is wrong."""
    try:
        return model.model_validate(arguments)
    except ValidationError as e:
        problems: dict[str, str] = {}
        for found in e.errors(include_url=False, include_input=False)[:MAX_PROBLEMS]:
            place = found["loc"]
            problems.setdefault(".".join(map(str, place)) or "arguments", _explain(model, place, found))
        (field, problem), *others = problems.items()
        raise InvalidParams(field, problem, others) from e


def _explain(model: type[BaseModel], place: Sequence[int | str], problem: ErrorDetails) -> str:
    """Return what is wrong with an argument in words that name what would be accepted, not our classes."""
    if problem["type"] == "extra_forbidden":
        names = _names_at(model, place[:-1])
        near = get_close_matches(str(place[-1]), names, 1)
        return f"there is no such field: did you mean {near[0]}?" if near else f"there is no such field, {_only(names)}"
    if problem["type"] in ("model_type", "model_attributes_type"):
        return f"must be an object with {', '.join(_names_at(model, place))}"
    return problem["msg"].removeprefix("Value error, ")


def _only(names: Sequence[str]) -> str:
    return f"only {', '.join(names)}" if names else "and none is taken"


def _names_at(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """Return the fields of the object at a place in the arguments, by the names that callers write."""
    for step in place:
        if isinstance(step, str):
            inner = next((each for name, each in model.model_fields.items() if _public_name(name, each) == step), None)
            found = None if inner is None else _model_in(inner.annotation)
            model = found or model
    return [_public_name(name, each) for name, each in model.model_fields.items()]


def _public_name(name: str, info: FieldInfo) -> str:
    match info.validation_alias:
        case AliasChoices(choices=[str(first), *_]):
            return first
        case alias:
            return alias if isinstance(alias, str) else name


def _model_in(annotation: object) -> type[BaseModel] | None:
    """Return the model in an annotation such as `list[Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for each in get_args(annotation) if (found := _model_in(each))), None)


class RequestState(StrEnum):
    RECEIVED = "req:received"
    VALIDATING = "req:validating"
    INVALID_REQUEST = "req:invalid_request"
    EXECUTING_TOOL = "req:executing_tool"
    TOOL_ERROR = "req:tool_error"
    RAW_OUTPUT_READY = "req:raw_output_ready"
    PRUNE_CHECK = "req:prune_check"
    CALLING_PRUNER = "req:calling_pruner"
    PRUNER_ERROR_FALLBACK = "req:pruner_error_fallback"
    RESPOND_RAW = "req:respond_raw"
    RESPOND_PRUNED = "req:respond_pruned"
    RESPONDED = "req:responded"
    INTERNAL_ERROR = "req:internal_error"


TERMINAL = frozenset(
    (RequestState.INVALID_REQUEST, RequestState.TOOL_ERROR, RequestState.RESPONDED, RequestState.INTERNAL_ERROR)
)


class RequestEvent(StrEnum):
    ACCEPTED = "request accepted"
    UNPARSABLE = "request body parse error"
    INVALID = "arguments invalid"
    VALID = "arguments valid"
    FAILED = "operation failed, with nothing to show"
    FAILED_WITH_OUTPUT = "operation failed, with output"
    TIMED_OUT = "operation timed out, with nothing to show"
    TIMED_OUT_WITH_OUTPUT = "operation timed out, with output"
    SUCCEEDED = "operation succeeded"
    CAPTURED = "raw output captured"
    NO_QUESTION = "no context_focus_question"
    UNCONFIGURED = "pruning disabled or unconfigured"
    TOO_LARGE = "raw output exceeds max_prune_input_bytes"
    ELIGIBLE = "question present and pruning eligible"
    PRUNED = "valid pruned payload"
    PRUNER_TIMED_OUT = "pruner timeout"
    PRUNER_HTTP_ERROR = "pruner non-2xx or network error"
    PRUNER_INVALID = "invalid pruner response"
    PRUNER_FAULT = "the pruner here gave the text back whole"
    FELL_BACK = "fallback chosen"
    WRITTEN = "response written"
    UNWRITTEN = "response serialization or write error"
    EXCEPTION = "unhandled exception"


@dataclass(frozen=True, slots=True)
class RequestTransition:
    to: RequestState
    logs: tuple[str, ...] = ()


_S = RequestState
_E = RequestEvent


def _to(state: RequestState, *logs: str) -> RequestTransition:
    return RequestTransition(state, logs)


# A failing command's output is the most useful there is: with output, a failure goes on like a success,
# and the answer says that it is an error.
TRANSITIONS: Mapping[tuple[RequestState, RequestEvent], RequestTransition] = {
    (_S.RECEIVED, _E.ACCEPTED): _to(_S.VALIDATING, "tool.request_received"),
    (_S.RECEIVED, _E.UNPARSABLE): _to(_S.INVALID_REQUEST, "tool.request_parse_failed"),
    (_S.VALIDATING, _E.INVALID): _to(_S.INVALID_REQUEST, "tool.request_invalid"),
    (_S.VALIDATING, _E.VALID): _to(_S.EXECUTING_TOOL, "tool.exec_start"),
    (_S.EXECUTING_TOOL, _E.FAILED): _to(_S.TOOL_ERROR, "tool.exec_failed"),
    (_S.EXECUTING_TOOL, _E.FAILED_WITH_OUTPUT): _to(_S.RAW_OUTPUT_READY, "tool.exec_failed"),
    (_S.EXECUTING_TOOL, _E.TIMED_OUT): _to(_S.TOOL_ERROR, "tool.exec_timeout", "tool.exec_failed"),
    (_S.EXECUTING_TOOL, _E.TIMED_OUT_WITH_OUTPUT): _to(_S.RAW_OUTPUT_READY, "tool.exec_timeout", "tool.exec_failed"),
    (_S.EXECUTING_TOOL, _E.SUCCEEDED): _to(_S.RAW_OUTPUT_READY, "tool.exec_ok"),
    (_S.RAW_OUTPUT_READY, _E.CAPTURED): _to(_S.PRUNE_CHECK),
    (_S.PRUNE_CHECK, _E.NO_QUESTION): _to(_S.RESPOND_RAW),
    (_S.PRUNE_CHECK, _E.UNCONFIGURED): _to(_S.RESPOND_RAW),
    (_S.PRUNE_CHECK, _E.TOO_LARGE): _to(_S.RESPOND_RAW),
    (_S.PRUNE_CHECK, _E.ELIGIBLE): _to(_S.CALLING_PRUNER, "pruner.call_start"),
    (_S.CALLING_PRUNER, _E.PRUNED): _to(_S.RESPOND_PRUNED, "pruner.call_ok"),
    (_S.CALLING_PRUNER, _E.PRUNER_TIMED_OUT): _to(_S.PRUNER_ERROR_FALLBACK, "pruner.timeout", "pruner.call_failed"),
    (_S.CALLING_PRUNER, _E.PRUNER_HTTP_ERROR): _to(_S.PRUNER_ERROR_FALLBACK, "pruner.http_error", "pruner.call_failed"),
    (_S.CALLING_PRUNER, _E.PRUNER_INVALID): _to(
        _S.PRUNER_ERROR_FALLBACK, "pruner.invalid_response", "pruner.call_failed"
    ),
    (_S.CALLING_PRUNER, _E.PRUNER_FAULT): _to(_S.PRUNER_ERROR_FALLBACK, "pruner.call_failed"),
    (_S.PRUNER_ERROR_FALLBACK, _E.FELL_BACK): _to(_S.RESPOND_RAW),
    (_S.RESPOND_RAW, _E.WRITTEN): _to(_S.RESPONDED, "tool.respond_ok"),
    (_S.RESPOND_PRUNED, _E.WRITTEN): _to(_S.RESPONDED, "tool.respond_ok"),
    (_S.RESPOND_RAW, _E.UNWRITTEN): _to(_S.INTERNAL_ERROR, "tool.respond_failed"),
    (_S.RESPOND_PRUNED, _E.UNWRITTEN): _to(_S.INTERNAL_ERROR, "tool.respond_failed"),
    **{
        (state, _E.EXCEPTION): _to(_S.INTERNAL_ERROR, "tool.internal_error")
        for state in RequestState
        if state not in TERMINAL
    },
}
