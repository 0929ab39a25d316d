"""Which protected lines a prune may not touch, given how much it is allowed to cut."""

from collections.abc import Sequence

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning.select import Costs
from kimi_proxy.features.pruning.structure.blocks import Block, Outline

# Up to this ratio every protected line stays. Beyond it the caller asks for so little text that an
# outline of all of it would leave no room for the answer: structure then stays around what is kept.
GENEROUS_RATIO = 0.6
ALWAYS = frozenset({"no_prune"})
FAILURES = frozenset({"failure", "traceback"})
FAILURES_SHARE = 0.5  # of the lines that may stay
ESSENTIAL = frozenset({"import", "signature", "header", "heading", "error", "summary"}) | ALWAYS | FAILURES
FRAMES = frozenset({"signature", "heading"})


def always(outline: Outline, lines: Sequence[str], source_type: SourceType, max_prune_ratio: float) -> list[bool]:
    """For each line whether it must stay whatever it is worth."""
    stays = [why in ALWAYS for why in outline.protected]
    if source_type == "logs":
        failures = [why in ALWAYS or why in FAILURES for why in outline.protected]
        if sum(failures) <= FAILURES_SHARE * (1 - max_prune_ratio) * len(lines):
            stays = failures
    if lines and not lines[-1]:
        stays[-1] = True  # what ends with a newline goes out with one
    return stays


def outlined(keep: Sequence[bool], outline: Outline) -> list[bool]:
    """`keep` with all protected lines."""
    return [stays or why != "" for stays, why in zip(keep, outline.protected, strict=True)]


def sketched(keep: Sequence[bool], outline: Outline) -> list[bool]:
    """`keep` with the protected lines that tell most: first lines of signatures, not how they go on."""
    return [stays or why in ESSENTIAL for stays, why in zip(keep, outline.protected, strict=True)]


def framed(keep: Sequence[bool], outline: Outline, costs: Costs, share: float) -> list[bool]:
    """`keep` with the headers above kept lines that cost at most this share of them.

    A dear one may go: the marker in its place names what the kept lines belong to.
    """
    out = list(keep)
    for block in outline.blocks:
        rows = [i for i in range(block.start, block.body) if outline.protected[i] in FRAMES and not keep[i]]
        first = next((i for i in range(block.body, block.end) if keep[i]), None)
        if rows and first is not None and _price(rows, first, costs) <= share * _paid(block, keep, costs):
            for i in rows:
                out[i] = True
    return out


def _price(rows: Sequence[int], first: int, costs: Costs) -> int:
    """What a header costs: its lines, and a marker for the gap between it and the first kept line."""
    return sum(costs.lines[i] for i in rows) + min(costs.marker, sum(costs.lines[rows[-1] + 1 : first]))


def _paid(block: Block, keep: Sequence[bool], costs: Costs) -> int:
    return sum(costs.lines[i] for i in range(block.body, block.end) if keep[i])
