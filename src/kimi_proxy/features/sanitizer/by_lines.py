"""Shortens an output line by line: the engine says which of them go."""

from collections.abc import Callable, Sequence

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Annotation, Options, Question, SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.outline import outline
from kimi_proxy.features.pruning.protect import GENEROUS_RATIO
from kimi_proxy.features.pruning.render import render
from kimi_proxy.features.sanitizer import listing
from kimi_proxy.features.sanitizer.numbered import bare_lines
from kimi_proxy.features.sanitizer.ratios import FAILING, MIN_KEEP_LINES, log_ratio, ratio_of
from kimi_proxy.features.sanitizer.shortened import Hidden, Names, Shortened, Task

_AS: dict[str, SourceType] = {"listing": "docs", "logs": "logs", "code": "code", "docs": "docs"}


def shorten(task: Task, names: Names, before: int, check: Callable[[], None]) -> Shortened:
    """The lines that matter for the goal, exactly as they were, around markers."""
    lines = text_lines.split(task.text)
    judged, kind = bare_lines(lines), _AS[task.kind]
    protected = outline(judged, kind, check).protected if task.kind == "logs" else ()
    ratio = ratio_of(task.kind, before, task.is_unread)
    scores = listing.worth(lines, task.goal, check) if task.kind == "listing" else None
    prune_id = names.new("prn")
    for limit in _limits(protected, ratio):
        options = Options(limit, MIN_KEEP_LINES, 0, annotate_lines=False, include_markers=True)
        question = Question(text_lines.join(judged), task.goal, kind, options)
        annotations = engine.prune(question, prune_id, scores, check).annotations
        if not _cuts_failure(annotations, protected):
            hidden = Hidden(prune_id, task.text, kind, limit, tuple(a.cut for a in annotations))
            return _shown(task, render(lines, annotations, options), hidden, before)
    return Shortened(task.text, "failures", (), before, before)


def _limits(protected: Sequence[str], ratio: float) -> Sequence[float]:
    """How much may go; if that would take a failure along, a limit at which the engine keeps all that is protected."""
    first = log_ratio(protected, ratio)
    return (first, GENEROUS_RATIO) if protected and first > GENEROUS_RATIO else (first,)


def _cuts_failure(annotations: Sequence[Annotation], protected: Sequence[str]) -> bool:
    gone = (range(a.cut.start - 1, a.cut.end) for a in annotations)
    return bool(protected) and any(protected[row] in FAILING for rows in gone for row in rows)


def _shown(task: Task, text: str, hidden: Hidden, before: int) -> Shortened:
    if not hidden.cuts:
        return Shortened(task.text, "nothing_to_cut", (), before, before)
    hint = task.hint.replace("{id}", hidden.id)
    shown = f"{text}{'' if text.endswith(chr(10)) else chr(10)}{hint}" if hint else text
    after = tokens.count(shown)
    if after >= before:
        return Shortened(task.text, "nothing_to_cut", (), before, before)
    return Shortened(shown, "pruned", (hidden,), before, after)
