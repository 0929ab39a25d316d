"""One request to an agent tool, from its arguments to its answer, along the table of states."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Annotated, Generic

from pydantic import BaseModel, ConfigDict, Field

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import InvalidParams, KimiProxyError, PruneFailed, ToolFailed
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.jsonrpc import when_sent
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.tool import TRANSITIONS, Arguments, Integer, RequestEvent, RequestState, ToolAnswer, validate
from kimi_proxy.services.tools.ends import number_lines
from kimi_proxy.services.tools.pruning import PrunedOutput, Pruning


@dataclass(frozen=True, slots=True)
class ToolProblem:
    """Why an output is an error all the same; `reason` is for logs, `remark` for the model."""

    reason: str
    remark: str
    timeout_ms: int | None = None  # of a command that timed out

    @property
    def fields(self) -> JsonObject:
        """What is logged of it."""
        return {} if self.timeout_ms is None else {"timeout_ms": self.timeout_ms}


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The output of a tool. It may be larger than memory: check `size` before reading `text`."""

    size: int  # in bytes
    text: Callable[[], str]  # all of it
    shown: Callable[[], Awaitable[str]]  # the unpruned response
    unstored: Callable[[str], str]  # the response where the store or we have a fault, which it may name
    origin: Origin
    first_line: int | None = None  # a window of a file prints its numbers, from this one; it has a line then
    problem: ToolProblem | None = None
    remarks: tuple[str, ...] = ()
    meta: JsonObject = field(default_factory=dict)
    is_whole: bool = True  # False: a part of it was not kept, and is not in `text`


def of_text(
    text: str,
    origin: Origin,
    first_line: int | None = None,
    problem: ToolProblem | None = None,
    remarks: tuple[str, ...] = (),
    meta: JsonObject | None = None,
) -> ToolOutput:
    """Return an output that is a text in memory."""

    def show_all(why: str = "") -> str:
        return text if first_line is None else number_lines(text, first_line)

    async def show() -> str:
        return show_all()

    return ToolOutput(len(text), lambda: text, show, show_all, origin, first_line, problem, remarks, meta or {})


MAX_CHARS = 4000

SCHEMA: JsonObject = {
    "type": "string",
    "description": "Full question, if much will be printed; keeps only the lines that matter for it",
}


class FocusArguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    context_focus_question: str | None = None


MAX_TOKENS_SCHEMA: JsonObject = {"type": "integer", "minimum": 100, "description": "of the answer without a question"}


class AnswerArguments(FocusArguments):
    max_tokens: Annotated[Integer, Field(ge=100)] | None = None


log = logging.getLogger(__name__)

_PRUNER_EVENTS = {
    "timeout": RequestEvent.PRUNER_TIMED_OUT,
    "http_error": RequestEvent.PRUNER_HTTP_ERROR,
    "invalid_response": RequestEvent.PRUNER_INVALID,
}


class ToolRequest:
    """The state of a request. Every step is in the table, and is logged under the table's names."""

    def __init__(self, tool: str, now: Callable[[], float] = time.monotonic) -> None:
        self.id = new_id("req")
        self.state = RequestState.RECEIVED
        self._tool = tool
        self._now = now
        self._began = now()

    def step(self, event: RequestEvent, **fields: JsonValue) -> None:
        transition = TRANSITIONS[self.state, event]
        about = {"request_id": self.id, "tool": self._tool, **fields}
        log.debug("tool.state", extra={**about, "state": self.state, "condition": event, "to": transition.to})
        for name in transition.logs:
            log.info(name, extra=about)
        self.state = transition.to

    def fail(self) -> None:
        """Log an unexpected exception, which the caller raises again."""
        log.exception("tool.internal_error", extra={"request_id": self.id, "tool": self._tool, "state": self.state})
        self.state = TRANSITIONS[self.state, RequestEvent.EXCEPTION].to

    def lap_ms(self) -> int:
        """Milliseconds since the last lap."""
        began, self._began = self._began, self._now()
        return round((self._began - began) * 1000)


@dataclass(frozen=True, slots=True)
class AgentTool(Generic[Arguments]):
    """A tool whose output is pruned for a question, if its caller asks one."""

    name: str
    title: str
    description: str
    schema: JsonObject
    arguments: type[Arguments]
    run: Callable[[Caller, Arguments], AbstractAsyncContextManager[ToolOutput]]
    pruning: Pruning
    read_only: bool = True
    aliases: tuple[str, ...] = ()

    async def call(self, who: Caller, arguments: Mapping[str, JsonValue]) -> ToolAnswer:
        request = ToolRequest(self.name)
        try:
            return await self._answer(who, request, arguments)
        except KimiProxyError:
            raise
        except Exception:
            request.fail()
            raise

    async def _answer(self, who: Caller, request: ToolRequest, arguments: Mapping[str, JsonValue]) -> ToolAnswer:
        """Check the arguments, run the tool, prune its output, answer."""
        request.step(RequestEvent.ACCEPTED)
        try:
            checked_arguments = validate(self.arguments, arguments)
        except InvalidParams as e:
            request.step(RequestEvent.INVALID, validation_errors=e.field)
            raise
        request.step(RequestEvent.VALID)
        request.lap_ms()
        async with AsyncExitStack() as stack:
            try:
                output = await stack.enter_async_context(self.run(who, checked_arguments))
            except ToolFailed as e:
                return _failure_answer(request, e.reason, str(e), {}, {})
            problem = output.problem
            if problem and not output.size:
                return _failure_answer(request, problem.reason, problem.remark, output.meta, problem.fields)
            fields: JsonObject = {**output.meta, "duration_ms": request.lap_ms(), "bytes": output.size}
            if problem is None:
                request.step(RequestEvent.SUCCEEDED, **fields)
            elif problem.reason == "timeout":
                request.step(RequestEvent.TIMED_OUT_WITH_OUTPUT, error=problem.reason, **problem.fields, **fields)
            else:
                request.step(RequestEvent.FAILED_WITH_OUTPUT, error=problem.reason, **fields)
            request.step(RequestEvent.CAPTURED)
            asked = arguments.get("context_focus_question")
            question = asked.strip() if isinstance(asked, str) else ""
            if len(question) > MAX_CHARS:
                cut = f"of the question of {len(question)} characters the first {MAX_CHARS} were used"
                output = replace(output, remarks=(*output.remarks, cut))
            return await self._prune(who, request, output, question[:MAX_CHARS])

    async def _prune(self, who: Caller, request: ToolRequest, output: ToolOutput, question: str) -> ToolAnswer:
        """Return the output pruned for the question, or unchanged if pruning fails."""
        pruning: JsonObject
        why_not = self._ineligible(output, question)
        if why_not is not None:
            event, reason, remark = why_not
            request.step(event)
            pruning = {"attempted": False, "applied": False, "reason": reason}
            return _make_answer(request, output, await self._show(output), pruning, remark)
        request.step(RequestEvent.ELIGIBLE, endpoint=self.pruning.endpoint)
        try:
            found = await self.pruning.shorten(who, output.text(), question, output.origin)
        except PruneFailed as e:
            event = _PRUNER_EVENTS.get(e.reason, RequestEvent.PRUNER_FAULT)
            request.step(event, reason=e.reason, duration_ms=request.lap_ms())
            request.step(RequestEvent.FELL_BACK)
            pruning = {"attempted": True, "applied": False, "fallback": True, "error": e.reason}
            return _make_answer(request, output, await self._show(output), pruning, f"not pruned: {e.reason}")
        request.step(RequestEvent.PRUNED, duration_ms=request.lap_ms(), pruned_bytes=len(found.text))
        pruning = {"attempted": True, "applied": found.is_applied, "tokens_before": found.tokens_before}
        pruning["tokens_after"] = found.tokens_after
        hidden: JsonObject = {"prune_id": found.prune_id, "pruned_lines": found.hidden}
        pruning |= hidden if found.is_applied else {"reason": "nothing_to_prune"}
        text = found.text if output.first_line is None else found.number_lines(output.first_line)
        return _make_answer(request, output, text, pruning, _recovery_hint(found, output.first_line))

    async def _show(self, output: ToolOutput) -> str:
        """Return the unpruned response. The command has run: no fault of ours costs its output."""
        return await self.pruning.fail_open.run("show", output.shown(), output.unstored)

    def _ineligible(self, output: ToolOutput, question: str) -> tuple[RequestEvent, str, str] | None:
        limit = self.pruning.max_input_bytes
        if not question:
            return RequestEvent.NO_QUESTION, "no_question", ""
        if not self.pruning.enabled:
            return RequestEvent.UNCONFIGURED, "disabled_or_unconfigured", "not pruned: pruning is switched off"
        if output.size > limit:
            too_large = f"not pruned: {output.size} bytes are over the limit of {limit}"
            return RequestEvent.TOO_LARGE, "input_too_large", too_large
        if not output.is_whole:
            return RequestEvent.TOO_LARGE, "input_too_large", "not pruned: a part of the output was not kept"
        return None


def parse_failed(problem: str) -> None:
    """Log a request whose body cannot be read."""
    ToolRequest("").step(RequestEvent.UNPARSABLE, problem=problem[:200])


def _failure_answer(
    request: ToolRequest, reason: str, problem: str, meta: JsonObject, fields: JsonObject
) -> ToolAnswer:
    event = RequestEvent.TIMED_OUT if reason == "timeout" else RequestEvent.FAILED
    request.step(event, error=reason, duration_ms=request.lap_ms(), **fields)
    return ToolAnswer(problem, is_error=True, meta={**meta, "request_id": request.id, "error": reason})


def _recovery_hint(found: PrunedOutput, first_line: int | None) -> str:
    """Return how a model reads the lines that it doesn't see."""
    if not found.is_applied:
        return ""
    counted = f"{found.hidden} of {found.lines} lines pruned ({found.tokens_before}→{found.tokens_after} tokens)"
    if not found.exact:
        counted = f"rewritten by the pruner ({found.tokens_before}→{found.tokens_after} tokens)"
    markers = "the lines of a marker" if found.exact else f"lines 1-{found.lines}"
    if first_line not in (None, 1) and found.exact:
        markers += f" (they count from file line {first_line})"
    return f'{counted}; read hidden lines with recover_text, prune_id "{found.prune_id}" and {markers}'


def _make_answer(request: ToolRequest, output: ToolOutput, text: str, pruning: JsonObject, remark: str) -> ToolAnswer:
    problem = output.problem.remark if output.problem else ""
    remarks = [line for line in (problem, *output.remarks, remark) if line]
    meta: JsonObject = {**output.meta, "request_id": request.id, "pruning": pruning}
    mode = "pruned" if request.state is RequestState.RESPOND_PRUNED else "raw"
    when_sent(lambda sent: request.step(RequestEvent.WRITTEN if sent else RequestEvent.UNWRITTEN, mode=mode))
    return ToolAnswer(with_remarks(text, remarks), is_error=bool(problem), meta=meta)


def with_remarks(text: str, remarks: list[str]) -> str:
    """Return `text`, and below it one line of ours if there are remarks."""
    if not remarks:
        return text
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}[kimi-proxy] {'; '.join(remarks)}"
