"""The note kept beside an original: what was asked and what was cut, so that it can be explained later.

The same question with the same outcome makes the same note: nothing in it depends on the hour or the load.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from pydantic import BaseModel, ValidationError

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import InvalidParams, ParseError
from kimi_proxy.core.prune import Cut, Options, Pruned, Question, SourceType

GOAL_MAX_CHARS = 10_000


class _Note(BaseModel):
    goal: str
    source_type: SourceType
    options: Options
    cuts: list[Cut]


@dataclass(frozen=True, slots=True)
class About:
    """A question without its text, and the cuts that answered it."""

    question: Question
    cuts: Sequence[Cut]


def encode(question: Question, pruned: Pruned, backend: str) -> bytes:
    note: dict[str, object] = {
        "goal": question.goal[:GOAL_MAX_CHARS],
        "source_type": question.source_type,
        "options": asdict(replace(question.options, timeout_ms=0)),
        "cuts": [asdict(a.cut) for a in pruned.annotations],
        "stats": {
            "backend": backend,
            "original_lines": pruned.original_lines,
            "pruned_lines": pruned.pruned_lines,
            "tokens_est_before": pruned.tokens_before,
            "tokens_est_after": pruned.tokens_after,
        },
        "warnings": list(pruned.warnings),
    }
    return jsontext.encode(note)


def decode(note: bytes, prune_id: str) -> About:
    try:
        read = _Note.model_validate(jsontext.decode(note))
    except (ParseError, ValidationError) as e:
        raise InvalidParams("prune_id", f"{prune_id} names an original that was not pruned for a goal") from e
    return About(Question("", read.goal, read.source_type, read.options), read.cuts)
