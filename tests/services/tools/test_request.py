"""Every row of the tables that describe a tool request, walked through by a real request."""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from pydantic import BaseModel, ConfigDict

from kimi_proxy.core import jsonrpc
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import InvalidParams, PruneFailed, ToolFailed
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.prune import Annotation, Cut, SourceType
from kimi_proxy.features.tool import TRANSITIONS, RequestEvent, RequestState, ToolAnswer
from kimi_proxy.services.fail_open import FailOpen
from kimi_proxy.services.tools import request
from kimi_proxy.services.tools.pruning import PrunedOutput, Pruning
from kimi_proxy.services.tools.request import AgentTool, ToolOutput, ToolProblem, parse_failed

S = RequestState
TEXT = "one\ntwo\nthree\nfour"
MARKER = "⟦PRUNÉ: prune_id=prn_0123456789abcdef lignes 2-3 (2) raison=hors focus⟧"
SHORTENED = PrunedOutput(
    f"one\n{MARKER}\nfour", TEXT, "prn_0123456789abcdef", (Annotation(Cut(2, 3, "hors focus"), MARKER),), 40, 20
)
START = ["tool.request_received", "tool.exec_start"]
QUESTION: dict[str, JsonValue] = {"path": "x", "context_focus_question": "what is two?"}


class Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    path: str
    context_focus_question: str | None = None


Run = Callable[[Arguments], ToolOutput]
Shorten = Callable[[str], PrunedOutput]


def found(asked: Arguments) -> ToolOutput:
    return request.of_text(TEXT, "docs")


def failing(reason: str, text: str = TEXT) -> Run:
    return lambda asked: request.of_text(text, "logs", problem=ToolProblem(reason, f"it failed: {reason}"))


def raising(error: Exception) -> Callable[[object], ToolOutput]:
    def raise_it(asked: object) -> ToolOutput:
        raise error

    return raise_it


def pruner_raising(error: Exception) -> Shorten:
    def raise_it(text: str) -> PrunedOutput:
        raise error

    return raise_it


@dataclass(frozen=True)
class Row:
    """A row of the contract, what makes it happen, and what it promises."""

    name: str
    path: tuple[RequestState, ...]
    logs: list[str]
    pruning: JsonObject | None = None
    run: Run = found
    shorten: Shorten = field(default=lambda text: SHORTENED)
    arguments: dict[str, JsonValue] = field(default_factory=lambda: {"path": "x"})
    enabled: bool = True
    max_input_bytes: int = 1000
    is_error: bool = False
    sent: bool = True


UNTIL_CHECK = (S.RECEIVED, S.VALIDATING, S.EXECUTING_TOOL, S.RAW_OUTPUT_READY, S.PRUNE_CHECK)
UNTIL_PRUNER = (*UNTIL_CHECK, S.CALLING_PRUNER)
AS_RAW = (S.RESPOND_RAW, S.RESPONDED)
NO_QUESTION: JsonObject = {"attempted": False, "applied": False, "reason": "no_question"}
OK = [*START, "tool.exec_ok"]


def fallback(error: str) -> JsonObject:
    return {"attempted": True, "applied": False, "fallback": True, "error": error}


ROWS = [
    Row(
        "transition: req:received | request accepted → req:validating",
        (*UNTIL_CHECK, *AS_RAW),
        [*OK, "tool.respond_ok"],
        NO_QUESTION,
    ),
    Row(
        "transition: req:validating | arguments valid → req:executing_tool",
        (*UNTIL_CHECK, *AS_RAW),
        [*OK, "tool.respond_ok"],
        NO_QUESTION,
        arguments={"path": "x", "context_focus_question": None},
    ),
    Row(
        "transition: req:executing_tool | operation fails (ENOENT) → req:tool_error",
        (S.RECEIVED, S.VALIDATING, S.EXECUTING_TOOL, S.TOOL_ERROR),
        [*START, "tool.exec_failed"],
        run=raising(ToolFailed("not_found", "x does not exist")),
        is_error=True,
    ),
    Row(
        "transition: req:executing_tool | operation fails (exit!=0) with nothing to show → req:tool_error",
        (S.RECEIVED, S.VALIDATING, S.EXECUTING_TOOL, S.TOOL_ERROR),
        [*START, "tool.exec_failed"],
        run=failing("exit_code", ""),
        is_error=True,
    ),
    Row(
        "decision: req:executing_tool | exit!=0 with output → its output, pruned like any other, and isError",
        (*UNTIL_PRUNER, S.RESPOND_PRUNED, S.RESPONDED),
        [*START, "tool.exec_failed", "pruner.call_start", "pruner.call_ok", "tool.respond_ok"],
        {"attempted": True, "applied": True, "prune_id": "prn_0123456789abcdef", "pruned_lines": 2}
        | {"tokens_before": 40, "tokens_after": 20},
        run=failing("exit_code"),
        arguments=QUESTION,
        is_error=True,
    ),
    Row(
        "transition: req:executing_tool | operation succeeds → req:raw_output_ready",
        (*UNTIL_CHECK, *AS_RAW),
        [*OK, "tool.respond_ok"],
        NO_QUESTION,
    ),
    Row(
        "transition: req:raw_output_ready | raw output captured → req:prune_check",
        (*UNTIL_CHECK, *AS_RAW),
        [*OK, "tool.respond_ok"],
        NO_QUESTION,
    ),
    Row(
        "transition: req:prune_check | no context_focus_question → req:respond_raw",
        (*UNTIL_CHECK, *AS_RAW),
        [*OK, "tool.respond_ok"],
        NO_QUESTION,
        arguments={"path": "x", "context_focus_question": "  "},
    ),
    Row(
        "transition: req:prune_check | pruning disabled → req:respond_raw",
        (*UNTIL_CHECK, *AS_RAW),
        [*OK, "tool.respond_ok"],
        {"attempted": False, "applied": False, "reason": "disabled_or_unconfigured"},
        arguments=QUESTION,
        enabled=False,
    ),
    Row(
        "transition: req:prune_check | raw output exceeds max_prune_input_bytes → req:respond_raw",
        (*UNTIL_CHECK, *AS_RAW),
        [*OK, "tool.respond_ok"],
        {"attempted": False, "applied": False, "reason": "input_too_large"},
        arguments=QUESTION,
        max_input_bytes=len(TEXT) - 1,
    ),
    Row(
        "transition: req:prune_check | question present and pruning eligible → req:calling_pruner",
        (*UNTIL_PRUNER, S.RESPOND_PRUNED, S.RESPONDED),
        [*OK, "pruner.call_start", "pruner.call_ok", "tool.respond_ok"],
        {"attempted": True, "applied": True, "prune_id": "prn_0123456789abcdef", "pruned_lines": 2}
        | {"tokens_before": 40, "tokens_after": 20},
        arguments=QUESTION,
        max_input_bytes=len(TEXT),
    ),
    Row(
        "transition: req:calling_pruner | valid pruned payload → req:respond_pruned",
        (*UNTIL_PRUNER, S.RESPOND_PRUNED, S.RESPONDED),
        [*OK, "pruner.call_start", "pruner.call_ok", "tool.respond_ok"],
        {"attempted": True, "applied": False, "reason": "nothing_to_prune", "tokens_before": 4, "tokens_after": 4},
        shorten=lambda text: PrunedOutput(text, text, "prn_0123456789abcdef", (), 4, 4),
        arguments=QUESTION,
    ),
    Row(
        "transition: req:calling_pruner | timeout, network error, non-2xx or invalid payload → fallback",
        (*UNTIL_PRUNER, S.PRUNER_ERROR_FALLBACK, *AS_RAW),
        [*OK, "pruner.call_start", "pruner.call_failed", "tool.respond_ok"],
        fallback("recovery_unavailable"),
        shorten=pruner_raising(PruneFailed("recovery_unavailable", "the store is ill")),
        arguments=QUESTION,
    ),
    Row(
        "transition: req:pruner_error_fallback | fallback chosen → req:respond_raw",
        (*UNTIL_PRUNER, S.PRUNER_ERROR_FALLBACK, *AS_RAW),
        [*OK, "pruner.call_start", "pruner.call_failed", "tool.respond_ok"],
        fallback("internal_error"),
        shorten=pruner_raising(PruneFailed("internal_error", "a fault")),
        arguments=QUESTION,
    ),
    Row(
        "transition: req:respond_raw | response written → req:responded",
        (*UNTIL_CHECK, *AS_RAW),
        [*OK, "tool.respond_ok"],
        NO_QUESTION,
    ),
    Row(
        "transition: req:respond_pruned | response written → req:responded",
        (*UNTIL_PRUNER, S.RESPOND_PRUNED, S.RESPONDED),
        [*OK, "pruner.call_start", "pruner.call_ok", "tool.respond_ok"],
        {"attempted": True, "applied": True, "prune_id": "prn_0123456789abcdef", "pruned_lines": 2}
        | {"tokens_before": 40, "tokens_after": 20},
        arguments=QUESTION,
    ),
    Row(
        "error: req:executing_tool | file read error (ENOENT, EACCES) → req:tool_error",
        (S.RECEIVED, S.VALIDATING, S.EXECUTING_TOOL, S.TOOL_ERROR),
        [*START, "tool.exec_failed"],
        run=raising(ToolFailed("permission_denied", "x may not be read")),
        is_error=True,
    ),
    Row(
        "error: req:executing_tool | subprocess timeout for bash/grep → req:tool_error",
        (S.RECEIVED, S.VALIDATING, S.EXECUTING_TOOL, S.TOOL_ERROR),
        [*START, "tool.exec_timeout", "tool.exec_failed"],
        run=failing("timeout", ""),
        is_error=True,
    ),
    Row(
        "decision: req:executing_tool | subprocess timeout with output so far → that output, and isError",
        (*UNTIL_CHECK, *AS_RAW),
        [*START, "tool.exec_timeout", "tool.exec_failed", "tool.respond_ok"],
        NO_QUESTION,
        run=failing("timeout"),
        is_error=True,
    ),
    Row(
        "error: req:calling_pruner | HTTP timeout → req:pruner_error_fallback",
        (*UNTIL_PRUNER, S.PRUNER_ERROR_FALLBACK, *AS_RAW),
        [*OK, "pruner.call_start", "pruner.timeout", "pruner.call_failed", "tool.respond_ok"],
        fallback("timeout"),
        shorten=pruner_raising(PruneFailed("timeout", "no answer")),
        arguments=QUESTION,
    ),
    Row(
        "error: req:calling_pruner | HTTP non-2xx / network error → req:pruner_error_fallback",
        (*UNTIL_PRUNER, S.PRUNER_ERROR_FALLBACK, *AS_RAW),
        [*OK, "pruner.call_start", "pruner.http_error", "pruner.call_failed", "tool.respond_ok"],
        fallback("http_error"),
        shorten=pruner_raising(PruneFailed("http_error", "HTTP 500")),
        arguments=QUESTION,
    ),
    Row(
        "error: req:calling_pruner | invalid pruner response → req:pruner_error_fallback",
        (*UNTIL_PRUNER, S.PRUNER_ERROR_FALLBACK, *AS_RAW),
        [*OK, "pruner.call_start", "pruner.invalid_response", "pruner.call_failed", "tool.respond_ok"],
        fallback("invalid_response"),
        shorten=pruner_raising(PruneFailed("invalid_response", "no JSON")),
        arguments=QUESTION,
    ),
    Row(
        "error: req:respond_raw | response serialization/write error → req:internal_error",
        (*UNTIL_CHECK, S.RESPOND_RAW, S.INTERNAL_ERROR),
        [*OK, "tool.respond_failed"],
        NO_QUESTION,
        sent=False,
    ),
    Row(
        "error: req:respond_pruned | response serialization/write error → req:internal_error",
        (*UNTIL_PRUNER, S.RESPOND_PRUNED, S.INTERNAL_ERROR),
        [*OK, "pruner.call_start", "pruner.call_ok", "tool.respond_failed"],
        {"attempted": True, "applied": True, "prune_id": "prn_0123456789abcdef", "pruned_lines": 2}
        | {"tokens_before": 40, "tokens_after": 20},
        arguments=QUESTION,
        sent=False,
    ),
]


FAIL_OPEN = FailOpen("fell back", lambda step, code: None)


def tool(row: Row) -> AgentTool[Arguments]:
    @asynccontextmanager
    async def run(who: Caller, asked: Arguments) -> AsyncIterator[ToolOutput]:
        yield row.run(asked)

    async def shorten(who: Caller, text: str, question: str, source_type: SourceType) -> PrunedOutput:
        return row.shorten(text)

    pruning = Pruning(shorten, row.enabled, "local", row.max_input_bytes, FAIL_OPEN)
    return AgentTool("read", "", "", {}, Arguments, run, pruning)


async def answer(row: Row) -> ToolAnswer:
    listeners = jsonrpc.collect()
    found = await tool(row).call(LOCAL, row.arguments)
    jsonrpc.report(listeners, row.sent)
    return found


class Trail:
    """What the log tells of one request."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.records = [r for r in caplog.records if r.name == "kimi_proxy.services.tools.request"]

    @property
    def path(self) -> tuple[str, ...]:
        steps = [vars(r) for r in self.records if r.msg == "tool.state"]
        for before, after in pairwise(steps):
            assert before["to"] == after["state"]
        return (steps[0]["state"], *(step["to"] for step in steps)) if steps else ()

    @property
    def events(self) -> list[str]:
        return [r.msg for r in self.records if r.msg != "tool.state"]

    @property
    def request_ids(self) -> set[str]:
        return {vars(r)["request_id"] for r in self.records}


@pytest.fixture
def debug(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "kimi_proxy.services.tools.request")
    return caplog


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
async def test_a_request_does_what_the_row_says(row: Row, debug: pytest.LogCaptureFixture):
    said = await answer(row)

    trail = Trail(debug)
    assert trail.path == row.path
    assert trail.events == row.logs
    assert len(trail.request_ids) == 1
    assert said.is_error is row.is_error
    assert said.meta.get("pruning") == row.pruning
    assert said.structured is None


STATES = {
    "state: req:received | assigns request_id": (S.RECEIVED, ROWS[0]),
    "state: req:validating | checks tool arguments": (S.VALIDATING, ROWS[0]),
    "state: req:invalid_request | validation fails, no execution": (
        S.INVALID_REQUEST,
        replace(ROWS[0], arguments={"path": 5}, run=raising(AssertionError("was executed"))),
    ),
    "state: req:executing_tool | validation succeeded": (S.EXECUTING_TOOL, ROWS[0]),
    "state: req:tool_error | execution fails": (
        S.TOOL_ERROR,
        replace(ROWS[0], run=raising(ToolFailed("not_found", "x does not exist"))),
    ),
    "state: req:raw_output_ready | execution completed": (S.RAW_OUTPUT_READY, ROWS[0]),
    "state: req:prune_check | raw output completed": (S.PRUNE_CHECK, ROWS[0]),
    "state: req:calling_pruner | pruning is eligible": (S.CALLING_PRUNER, replace(ROWS[0], arguments=QUESTION)),
    "state: req:pruner_error_fallback | the pruner failed": (
        S.PRUNER_ERROR_FALLBACK,
        replace(ROWS[0], arguments=QUESTION, shorten=pruner_raising(PruneFailed("timeout", "no answer"))),
    ),
    "state: req:respond_raw | pruning not attempted or failed": (S.RESPOND_RAW, ROWS[0]),
    "state: req:respond_pruned | a valid pruned result": (S.RESPOND_PRUNED, replace(ROWS[0], arguments=QUESTION)),
    "state: req:responded | finished writing": (S.RESPONDED, ROWS[0]),
    "state: req:internal_error | the answer could not be written": (S.INTERNAL_ERROR, replace(ROWS[0], sent=False)),
}


def test_every_state_has_a_row():
    assert {state for state, _ in STATES.values()} == set(RequestState)


@pytest.mark.parametrize(("state", "row"), STATES.values(), ids=STATES)
async def test_a_state_is_entered_on_its_condition(state: RequestState, row: Row, debug: pytest.LogCaptureFixture):
    with suppress(InvalidParams):
        await answer(row)

    assert state in Trail(debug).path


async def test_transition_req_validating_arguments_invalid_goes_to_req_invalid_request(
    debug: pytest.LogCaptureFixture,
):
    """Also the error row: schema/type/range validation errors, with the field named."""
    for wrong, field_name in (({}, "path"), ({"path": 5}, "path"), ({"path": "x", "colour": "red"}, "colour")):
        debug.clear()
        with pytest.raises(InvalidParams) as refused:
            await answer(replace(ROWS[0], arguments=wrong))

        assert refused.value.field == field_name
        assert Trail(debug).path == (S.RECEIVED, S.VALIDATING, S.INVALID_REQUEST)
        assert Trail(debug).events == ["tool.request_received", "tool.request_invalid"]
        assert vars(debug.records[-1])["validation_errors"] == field_name


def test_error_req_received_request_body_parse_error_goes_to_req_invalid_request(debug: pytest.LogCaptureFixture):
    parse_failed("not valid JSON")

    assert Trail(debug).path == (S.RECEIVED, S.INVALID_REQUEST)
    assert Trail(debug).events == ["tool.request_parse_failed"]


BROKEN = [
    ("req:executing_tool", replace(ROWS[0], run=raising(ZeroDivisionError()))),
    ("req:calling_pruner", replace(ROWS[0], shorten=pruner_raising(ZeroDivisionError()), arguments=QUESTION)),
]


@pytest.mark.parametrize(("state", "row"), BROKEN, ids=[state for state, _ in BROKEN])
async def test_transition_and_error_req_any_unhandled_exception_goes_to_req_internal_error(
    state: str, row: Row, debug: pytest.LogCaptureFixture
):
    with pytest.raises(ZeroDivisionError):
        await answer(row)

    last = debug.records[-1]
    assert (last.msg, vars(last)["state"], vars(last)["tool"]) == ("tool.internal_error", state, "read")
    assert last.exc_info is not None
    assert TRANSITIONS[RequestState(state), RequestEvent.EXCEPTION].to is S.INTERNAL_ERROR


def test_every_transition_of_the_table_is_walked_by_a_row():
    walked = {edge for row in ROWS for edge in pairwise(row.path)}
    elsewhere = {(S.RECEIVED, S.INVALID_REQUEST), (S.VALIDATING, S.INVALID_REQUEST)}
    table = {(state, t.to) for (state, event), t in TRANSITIONS.items() if event is not RequestEvent.EXCEPTION}

    assert walked | elsewhere == table


async def test_a_pruned_answer_ends_with_the_way_back():
    said = await answer(replace(ROWS[0], arguments=QUESTION))

    *text, last = said.text.split("\n")
    assert "\n".join(text) == SHORTENED.text
    assert last == (
        "[kimi-proxy] 2 of 4 lines pruned (40→20 tokens); read hidden lines with recover_text, "
        'prune_id "prn_0123456789abcdef" and the lines of a marker'
    )


async def test_without_a_question_the_output_goes_out_as_it_is():
    assert (await answer(ROWS[0])).text == TEXT


async def test_with_pruning_off_or_failed_the_output_is_whole_and_says_why():
    off = await answer(replace(ROWS[0], arguments=QUESTION, enabled=False))
    late = await answer(
        replace(ROWS[0], arguments=QUESTION, shorten=pruner_raising(PruneFailed("timeout", "no answer")))
    )

    assert off.text == f"{TEXT}\n[kimi-proxy] not pruned: pruning is switched off"
    assert late.text == f"{TEXT}\n[kimi-proxy] not pruned: timeout"


async def test_a_pruned_window_prints_the_numbers_of_the_file():
    def window(asked: Arguments) -> ToolOutput:
        return request.of_text(TEXT, "docs", first_line=100)

    said = await answer(replace(ROWS[0], arguments=QUESTION, run=window))

    assert said.text.split("\n")[:3] == ["100│ one", MARKER, "103│ four"]
    assert said.text.endswith("and the lines of a marker (they count from file line 100)")


async def test_logs_hold_no_text_and_no_question(debug: pytest.LogCaptureFixture):
    await answer(replace(ROWS[0], arguments=QUESTION))

    assert "two" not in str([vars(record) for record in debug.records])
