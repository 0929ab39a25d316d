"""Texts and questions for tests."""

from collections.abc import Sequence

from kimi_proxy.core.prune import Options, Question, SourceType
from kimi_proxy.features.recovery import LineRange, Recover


def a_log(lines: int, trouble_at: int | None = None) -> str:
    """A server's log, dull but for one error in the middle."""
    trouble_at = lines // 2 if trouble_at is None else trouble_at
    return "\n".join(
        f"2026-01-02 03:04:{i % 60:02} ERROR payment {i} refused: card expired"
        if i == trouble_at
        else f"2026-01-02 03:04:{i % 60:02} INFO GET /static/page{i * 7919 % 997}.css 200 {i % 31} ms"
        for i in range(lines)
    )


def a_question(
    text: str,
    goal: str = "why was the payment refused?",
    source_type: SourceType = "logs",
    *,
    max_prune_ratio: float = 0.8,
    min_keep_lines: int = 1,
    timeout_ms: int = 120_000,
    annotate_lines: bool = False,
    include_markers: bool = True,
) -> Question:
    options = Options(max_prune_ratio, min_keep_lines, timeout_ms, annotate_lines, include_markers)
    return Question(text, goal, source_type, options)


def lines_of(prune_id: str | None, ranges: Sequence[LineRange], with_numbers: bool = False) -> Recover:
    """Return the question for some lines of an original."""
    listed = [{"start_line": start, "end_line": end} for start, end in ranges]
    return Recover.model_validate({"prune_id": prune_id, "ranges": listed, "include_line_numbers": with_numbers})
