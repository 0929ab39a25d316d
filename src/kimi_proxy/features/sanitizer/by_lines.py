"""Shortens an output line by line: the engine says which of them go."""

from collections.abc import Callable

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Options, Question, SourceType
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.outline import outline
from kimi_proxy.features.pruning.render import annotate, render
from kimi_proxy.features.sanitizer import failures, listing
from kimi_proxy.features.sanitizer.numbered import bare_lines
from kimi_proxy.features.sanitizer.ratios import MIN_KEEP_LINES, log_ratio, ratio_of
from kimi_proxy.features.sanitizer.shortened import Hidden, Names, Shortened, Task

_AS: dict[str, SourceType] = {"listing": "docs", "logs": "logs", "code": "code", "docs": "docs"}


def shorten(task: Task, names: Names, before: int, check: Callable[[], None]) -> Shortened:
    """The lines that matter for the goal, exactly as they were, around markers."""
    lines = text_lines.split(task.text)
    judged, kind = bare_lines(lines), _AS[task.kind]
    protected = outline(judged, kind, check).protected if task.kind == "logs" else ()
    ratio = log_ratio(protected, ratio_of(task.kind, before, task.is_unread))
    scores = listing.worth(lines, task.goal, check) if task.kind == "listing" else None
    options = Options(ratio, MIN_KEEP_LINES, 0, annotate_lines=False, include_markers=True)
    question = Question(text_lines.join(judged), task.goal, kind, options)
    prune_id = names.new("prn")
    chosen = (annotation.cut for annotation in engine.prune(question, prune_id, scores, check).annotations)
    cuts = tuple(failures.spared(chosen, lines, failures.rows(judged, protected)))
    text = render(lines, annotate(cuts, prune_id), options)
    return _shown(task, text, Hidden(prune_id, task.text, kind, ratio, cuts), before)


def _shown(task: Task, text: str, hidden: Hidden, before: int) -> Shortened:
    if not hidden.cuts:
        return Shortened(task.text, "nothing_to_cut", (), before, before)
    hint = task.hint.replace("{id}", hidden.id)
    shown = f"{text}{'' if text.endswith(chr(10)) else chr(10)}{hint}" if hint else text
    after = tokens.count(shown)
    if after >= before:
        return Shortened(task.text, "nothing_to_cut", (), before, before)
    return Shortened(shown, "pruned", (hidden,), before, after)
