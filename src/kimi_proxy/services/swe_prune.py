"""What swe-pruner's clients ask of `POST /prune`, answered by our own engine.

`threshold` is how relevant a line must be to stay. Our engine chooses the best lines within a limit instead, so
the threshold sets the limit: at most `1.5 × threshold` of the lines may go, and never more than 95 %. With 0
everything stays, with the usual 0.5 at most three quarters go.
"""

import asyncio
import logging
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Cut, Options, Question
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features import filtered, source_type
from kimi_proxy.services.prune_answer import PruneAnswer
from kimi_proxy.services.pruner import Pruner

TIMEOUT_MS = 10_000
GREED = 1.5
MAX_RATIO = 0.95

log = logging.getLogger(__name__)


class SwePrune(BaseModel):
    """Fields that we do not know are other clients' business; chunks are a matter of models that have them."""

    model_config = ConfigDict(extra="ignore", strict=True)

    code: str
    query: str
    threshold: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    always_keep_first_frags: bool = False
    chunk_overlap_tokens: int = 50


async def prune(asked: SwePrune, pruner: Pruner) -> JsonObject:
    ratio = min(GREED * asked.threshold, MAX_RATIO)
    options = Options(ratio, 0, TIMEOUT_MS, annotate_lines=False, include_markers=True)
    question = Question(asked.code, asked.query, source_type.guess("", asked.code), options)
    answer = await pruner.prune(question)
    scores = await pruner.line_scores(question)
    return await asyncio.to_thread(_answered, asked, answer, scores)


def _answered(asked: SwePrune, answer: PruneAnswer, scores: Sequence[float]) -> JsonObject:
    lines = text_lines.split(asked.code)
    cuts = _cuts(asked, answer)
    pruned_code = filtered.write(lines, cuts) if cuts else asked.code
    gone = {number for cut in cuts for number in range(cut.start, cut.end + 1)}
    pruned = answer.pruned
    return {
        "score": max(scores, default=0.0),
        "pruned_code": pruned_code,
        "token_scores": [[line, score] for line, score in zip(lines, scores, strict=False)],
        "kept_frags": [number for number in range(1, len(lines) + 1) if number not in gone],
        "origin_token_cnt": pruned.tokens_before,
        "left_token_cnt": tokens.count(pruned_code) if cuts else pruned.tokens_before,
        "model_input_token_cnt": pruned.tokens_before + tokens.count(asked.query),
        "error_msg": ", ".join(pruned.warnings) if pruned.used_fallback else None,
        "prune_id": answer.prune_id,
    }


def _cuts(asked: SwePrune, answer: PruneAnswer) -> list[Cut]:
    cuts = [annotation.cut for annotation in answer.pruned.annotations]
    if asked.always_keep_first_frags and cuts and cuts[0].start == 1:
        first = cuts.pop(0)
        if first.end > 1:
            cuts.insert(0, Cut(2, first.end, first.reason))
    return cuts
