"""A short French reason for each gap: what the lines were, never what the goal said."""

from collections import Counter
from collections.abc import Sequence

from kimi_proxy.core.markers import clean_reason
from kimi_proxy.core.prune import Cut, SourceType
from kimi_proxy.features.pruning.outline import Outline
from kimi_proxy.features.pruning.structure.blocks import Block
from kimi_proxy.features.pruning.template import rough, template

OFF_FOCUS = "hors focus"
REPEATED_SHARE = 0.6  # of a gap's lines with one template: then the gap is told as a repetition
NAME_CHARS = 40

_KINDS = {
    "function": "fonction",
    "method": "méthode",
    "class": "classe",
    "type": "type",
    "import": "imports",
    "file-header": "en-tête",
    "namespace": "module",
    "section": "section",
    "table": "tableau",
    "fence": "bloc de code",
    "list": "liste",
    "traceback": "trace",
    "failure": "échec",
}


def explained(
    gaps: Sequence[tuple[int, int]], outline: Outline, lines: Sequence[str], source_type: SourceType
) -> list[Cut]:
    return [Cut(a + 1, b, clean_reason(_reason(a, b, outline, lines, source_type))) for a, b in gaps]


def _reason(start: int, end: int, outline: Outline, lines: Sequence[str], source_type: SourceType) -> str:
    repeated = _repetition(lines[start:end]) if source_type == "logs" else None
    if repeated is not None:
        return repeated
    named = [b for b in outline.blocks if b.start < end and b.end > start and b.kind in _KINDS]
    inside = [b for b in named if b.start >= start and b.name]
    holder = max((b for b in named if b.start < start and b.end > start), key=lambda b: b.start, default=None)
    top = [b for b in inside if not any(o is not b and o.start <= b.start and b.end <= o.end for o in inside)]
    if len(top) == 1 or (top and holder is None and len({b.kind for b in top}) == 1):
        return f"{OFF_FOCUS}: {_told(top)}"
    if holder is not None and holder.name and not top:
        return f"{OFF_FOCUS}: suite de {_name(holder)}"
    return f"{OFF_FOCUS}: {_told(top)}" if top else OFF_FOCUS


def _told(blocks: Sequence[Block]) -> str:
    """`fonction parse_yaml`, or `12 fonctions: parse_yaml, dump…`."""
    first = blocks[0]
    kind = _KINDS[first.kind]
    if len(blocks) == 1:
        return f"{kind} {_name(first)}"
    names = ", ".join(_name(b) for b in blocks[:2])
    more = "…" if len(blocks) > 2 else ""
    return f"{len(blocks)} blocs: {names}{more}"


def _name(block: Block) -> str:
    name = " ".join(block.name.split())
    return name if len(name) <= NAME_CHARS else name[: NAME_CHARS - 1] + "…"


def _repetition(lines: Sequence[str]) -> str | None:
    """`lignes répétées: 214 × GET /health`, where most of a gap is one line said again and again."""
    seen = Counter(key for key in map(rough, lines) if key.strip())
    key, times = seen.most_common(1)[0] if seen else ("", 0)
    if times < 3 or times < REPEATED_SHARE * len(lines):
        return None
    return f"lignes répétées: {times} × {' '.join(template(key).split())[:NAME_CHARS]}"
