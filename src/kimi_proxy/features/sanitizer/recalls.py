"""Results of the calls by which a client reads cut text back: answered, refused, or failed with an error of ours."""

import re
from typing import Literal

from kimi_proxy.core.chat import Part
from kimi_proxy.features.sanitizer.plan import is_recovery

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
