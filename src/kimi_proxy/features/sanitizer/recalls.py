"""Results of the calls by which a client reads cut text back: answered, refused, or failed with an error of ours."""

import re
from dataclasses import dataclass
from typing import Literal

from kimi_proxy.core.chat import Content, Part, Request
from kimi_proxy.features.sanitizer.plan import MAX_ARGUMENT_BYTES, calls_recall_tool, is_recovery, is_recovery_call

RecallOutcome = Literal["answered", "refused", "failed"]

MAX_REFUSAL_CHARS = 1_000  # clients refuse in a sentence or two; a longer text is what was asked for
_ANSWERED = "raw_text"  # the key that our MCP tool answers with, however a client quotes its JSON
_OUR_ERROR = re.compile(
    r"\b(?:prune_id_not_found|invalid_(?:range|params|request)|store_unavailable|recovery_unavailable)\b"
    r"|MCP error -32\d{3}"
)
# The APIs of most clients have no flag for a failed call, so the words of their refusals decide.
_REFUSAL = re.compile(
    r"permission|\bden(?:y|ied)\b|\bdeclined\b|\breject(?:ed)?\b|\bcancell?ed\b"
    r"|not (?:been )?(?:allowed|granted|approved)|n't (?:granted|want|allow)"
    r"|requires? (?:\w+ )?(?:approval|confirmation)|no such tool|tool \S+ (?:was )?not found|^(?:mcp )?error\b",
    re.I,
)


def recall_outcome(call: Part, result: Part) -> RecallOutcome:
    """Return what became of a call that reads cut text back."""
    beginning = result.text[: 2 * MAX_REFUSAL_CHARS]
    if _ANSWERED in beginning:
        return "answered"
    if _OUR_ERROR.search(beginning, 0, MAX_REFUSAL_CHARS):
        return "failed"
    # A command that names an id may exit with an error for reasons of its own.
    if result.failed and is_recovery(call.name):
        return "refused"
    is_short = len(result.text) <= MAX_REFUSAL_CHARS
    return "refused" if is_short and _REFUSAL.search(beginning) else "answered"


@dataclass(frozen=True, slots=True)
class ClientRecalls:
    """What became of the calls by which a client read cut text back in a conversation."""

    answered: bool = False  # by a tool of ours that the client offers
    refused: bool = False

    def __or__(self, other: "ClientRecalls") -> "ClientRecalls":
        return ClientRecalls(self.answered or other.answered, self.refused or other.refused)


_NAMES = (b"recover_", b"prn_", b"msk_")  # one of them is in every such call


def client_recalls(request: Request) -> ClientRecalls:
    """Return what became of the calls of a request: those of our own tool are not among them."""
    if not any(message.content.derive(_has_reading_call) for message in request.messages):
        return ClientRecalls()
    found = ClientRecalls()
    calls: dict[str, Part | None] = {}  # by id; None: it reads nothing back
    for message in request.messages:
        for part in message.parts:
            if part.kind == "tool_call" and part.call_id:
                calls[part.call_id] = part if part.derive(_reads_back) else None
            elif part.kind == "tool_result" and (call := calls.get(part.call_id)) is not None:
                outcome = recall_outcome(call, part)
                found |= ClientRecalls(outcome == "answered" and calls_recall_tool(call), outcome == "refused")
    return found


def _has_reading_call(content: Content) -> bool:
    return any(part.kind == "tool_call" and part.derive(_reads_back) for part in content.parts)


def _reads_back(call: Part) -> bool:
    return _may_be_recall(call) and is_recovery_call(call)


def _may_be_recall(call: Part) -> bool:
    """Return False for most calls, without decoding them: their arguments may be long."""
    if is_recovery(call.name):
        return True
    raw = call.body[call.start : min(call.end, call.start + MAX_ARGUMENT_BYTES)]
    return any(name in raw for name in _NAMES)
