"""A short French reason for each gap: what the lines were, never what the goal said."""

from bisect import bisect_left
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
    first, last = (bisect_left(outline.blocks, row, key=_start) for row in (start, end))
    whole = [b for b in outline.blocks[first:last] if b.end <= end and b.kind in _KINDS]
    top = _outermost(whole)
    if top:
        return f"{OFF_FOCUS}: {_told(top)}"
    around = _around(start, outline.blocks, first)
    if around is not None:
        return f"{OFF_FOCUS}: suite de {_name(around)}"
    return f"{OFF_FOCUS}: {_KINDS[whole[0].kind]}" if whole else OFF_FOCUS


def _start(block: Block) -> int:
    return block.start


def _outermost(blocks: Sequence[Block]) -> list[Block]:
    """Those with a name that stand in no other with one; parents come first, so one look at each is enough."""
    found: list[Block] = []
    for block in blocks:
        if block.name and (not found or block.end > found[-1].end):
            found.append(block)
    return found


def _around(row: int, blocks: Sequence[Block], above: int) -> Block | None:
    """The innermost block with a name that `row` goes on with, among the `above` many that begin above it."""
    for at in range(above - 1, -1, -1):
        block = blocks[at]
        if row < block.end and block.kind in _KINDS and block.name:
            return block
        if block.depth == 0:
            return None
    return None


def _told(blocks: Sequence[Block]) -> str:
    """`fonction parse_yaml`, or `12 blocs: parse_yaml, dump…`."""
    if len(blocks) == 1:
        return f"{_KINDS[blocks[0].kind]} {_name(blocks[0])}"
    names = ", ".join(_name(b) for b in blocks[:2])
    return f"{len(blocks)} blocs: {names}{'…' if len(blocks) > 2 else ''}"


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
