"""The text that goes out: kept lines, and a marker where each gap was."""

from collections.abc import Sequence

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.markers import PruneMarker
from kimi_proxy.core.prune import Annotation, Cut, Options


def annotate(cuts: Sequence[Cut], prune_id: str) -> tuple[Annotation, ...]:
    return tuple(Annotation(c, str(PruneMarker(prune_id, c.start, c.end, c.reason))) for c in cuts)


def render(lines: Sequence[str], annotations: Sequence[Annotation], options: Options) -> str:
    """`lines` without their cuts. Nothing cut, nothing changed: no numbers either."""
    if not annotations:
        return text_lines.join(lines)
    out: list[str] = []
    after = 1
    for annotation in annotations:
        out += text_lines.pick(lines, after, annotation.cut.start - 1, options.annotate_lines)
        if options.include_markers:
            out.append(annotation.marker)
        after = annotation.cut.end + 1
    out += text_lines.pick(lines, after, len(lines), options.annotate_lines)
    return text_lines.join(out)
