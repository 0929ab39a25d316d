"""Shortens an output that has too few lines to choose from: its head and tail stay, around a marker."""

from kimi_proxy.core import tokens
from kimi_proxy.core.markers import MaskMarker
from kimi_proxy.features.pruning.trouble import alarm_of
from kimi_proxy.features.sanitizer.shortened import Hidden, Names, Shortened, Task

CHARS_PER_TOKEN = 4
# Lines that are longer than this on average are machine-made.
LONG_LINE_CHARS = 400


def suits(text: str) -> bool:
    return len(text) > LONG_LINE_CHARS * (text.count("\n") + 1)


def shorten(task: Task, names: Names, before: int) -> Shortened:
    head, tail = _ends(task)
    mask_id = names.new("msk")
    start, end = head, len(task.text) - tail
    if end <= start:
        return Shortened(task.text, "nothing_to_cut", (), before, before)
    if task.kind == "logs" and alarm_of(task.text[start:end]) == 1.0:
        return Shortened(task.text, "failures", (), before, before)
    marker = str(MaskMarker(mask_id, len(task.text), head, tail))
    hint = f"\n{task.hint.replace('{id}', mask_id)}" if task.hint else ""
    shown = task.text[:start] + marker + task.text[end:] + hint
    after = tokens.count(shown)
    if after >= before or len(shown) >= len(task.text):
        return Shortened(task.text, "nothing_to_cut", (), before, before)
    return Shortened(shown, "masked", (Hidden(mask_id, task.text),), before, after)


def _ends(task: Task) -> tuple[int, int]:
    """Of what the model has not read yet, as much as may always stay; of the rest, a glance."""
    shown = CHARS_PER_TOKEN * task.threshold_tokens // 2 if task.is_unread else task.preview_chars
    head = max(shown, task.preview_chars)
    return head, head // 2
