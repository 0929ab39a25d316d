"""Which protected lines a prune may not touch, given how much it is allowed to cut."""

from collections.abc import Sequence

from kimi_proxy.core.prune import SourceType
from kimi_proxy.features.pruning.structure.blocks import Outline

# Up to this ratio every protected line stays. Beyond it the caller asks for so little text that an
# outline of all of it would leave no room for the answer: structure then stays around what is kept.
GENEROUS_RATIO = 0.6
OUTLINE_SHARE = 0.4  # of the answer's tokens: so cheap an outline stays at any ratio
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


def framed(keep: Sequence[bool], outline: Outline) -> list[bool]:
    """`keep` with the headers above kept lines."""
    out = list(keep)
    for block in outline.blocks:
        if block.body > block.start and any(keep[block.body : block.end]):
            for i in range(block.start, block.body):
                out[i] = out[i] or outline.protected[i] in FRAMES
    return out
