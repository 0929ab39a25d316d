"""Reasons in words a person can check: of each cut for its marker, of each line for who asks."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kimi_proxy.core.markers import clean_reason
from kimi_proxy.core.prune import Cut, SourceType
from kimi_proxy.features.pruning.structure.blocks import Block, Floats, Outline
from kimi_proxy.features.pruning.structure.logs import count_without_numbers, template

OFF_FOCUS = "hors focus"
REPEATED_SHARE = 0.6  # of a gap's lines with one template: then its reason is the repetition
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


def cuts_with_reasons(
    gaps: Sequence[tuple[int, int]], outline: Outline, lines: Sequence[str], source_type: SourceType
) -> list[Cut]:
    return [Cut(a + 1, b, clean_reason(_reason(a, b, outline, lines, source_type))) for a, b in gaps]


def _reason(start: int, end: int, outline: Outline, lines: Sequence[str], source_type: SourceType) -> str:
    """Return why lines went; if some of them report errors, how many do."""
    first, last = (bisect_left(outline.errors, row) for row in (start, end))
    errors = f"dont {last - first} erreur{'s' if last - first > 1 else ''}, " if last > first else ""
    return errors + _describe_gap(start, end, outline, lines, source_type)


def _describe_gap(start: int, end: int, outline: Outline, lines: Sequence[str], source_type: SourceType) -> str:
    repeated = _repetition(lines[start:end]) if source_type == "logs" else None
    if repeated is not None:
        return repeated
    first, last = (bisect_left(outline.blocks, row, key=lambda block: block.start) for row in (start, end))
    whole = [b for b in outline.blocks[first:last] if b.end <= end and b.kind in _KINDS]
    named = _outermost(whole)
    if len(named) == 1:
        return f"{OFF_FOCUS}: {_KINDS[named[0].kind]} {_name(named[0])}"
    if named:
        names = ", ".join(_name(b) for b in named[:2])
        return f"{OFF_FOCUS}: {len(named)} blocs: {names}{'…' if len(named) > 2 else ''}"
    around = _around(start, outline.blocks, first)
    if around is not None:
        return f"{OFF_FOCUS}: suite de {_name(around)}"
    return f"{OFF_FOCUS}: {_KINDS[whole[0].kind]}" if whole else OFF_FOCUS


def _outermost(blocks: Sequence[Block]) -> list[Block]:
    """Return the named blocks inside no other named block; parents come first, so one pass is enough."""
    found: list[Block] = []
    for block in blocks:
        if block.name and (not found or block.end > found[-1].end):
            found.append(block)
    return found


def _around(row: int, blocks: Sequence[Block], above: int) -> Block | None:
    """Return the innermost block with a name that holds `row`, among the `above` many that begin above it."""
    for at in range(above - 1, -1, -1):
        block = blocks[at]
        if row < block.end and block.kind in _KINDS and block.name:
            return block
        if block.depth == 0:
            return None
    return None


def _name(block: Block) -> str:
    name = " ".join(block.name.split())
    return name if len(name) <= NAME_CHARS else name[: NAME_CHARS - 1] + "…"


def _repetition(lines: Sequence[str]) -> str | None:
    """Return `lignes répétées: 214 × GET /health` where most lines of a gap have one template."""
    seen = {key: times for key, times in count_without_numbers(lines).items() if key.strip()}
    key = max(seen, key=seen.__getitem__, default="")
    times = seen.get(key, 0)
    if times < 3 or times < REPEATED_SHARE * len(lines):
        return None
    return f"lignes répétées: {times} × {' '.join(template(key).split())[:NAME_CHARS]}"


STRONGEST = 2
FAINT = 0.05

_PROTECTED = {
    "import": "import",
    "signature": "signature of a definition",
    "signature+": "signature of a definition",
    "likeness": "reads like an import or a definition",
    "header": "header of the file",
    "heading": "heading",
    "error": "reports an error",
    "context": "next to an error",
    "traceback": "part of a traceback",
    "failure": "part of a failure report",
    "diagnostic": "names a place in a file and the problem there",
    "summary": "summary of a run",
    "no_prune": "inside a NO_PRUNE block",
    "table": "part of a table",
    "fence": "part of a code block",
}
REASONS: Mapping[str, tuple[str, ...]] = {
    "has the goal's words": ("line", "rank_line"),
    "has many of the goal's words": ("line_coverage",),
    "has the rarest of the goal's words": ("rarest",),
    "near the rarest of the goal's words": ("rarest_near",),
    "has an exact string from the goal": ("exact_here",),
    "near an exact string from the goal": ("exact",),
    "next to lines with the goal's words": ("near", "rank_near"),
    "among lines with the goal's words": ("window2", "window5", "rank_window5"),
    "among lines with many of the goal's words": ("window2_coverage", "window5_coverage"),
    "in a passage that matches the goal": (
        *("window12", "window12_coverage", "window25", "window25_coverage", "rank_window12"),
        *("stretch", "stretch_coverage", "rank_stretch"),
    ),
    "its block matches the goal": ("block", "block_mean", "block_rank"),
    "its block has many of the goal's words": ("block_coverage",),
    "its block has an exact string from the goal": ("block_exact",),
    "its block has a line that matches the goal": ("block_best",),
    "its block has words related to the goal's": ("block_kin",),
    "its header has the goal's words": ("header",),
    "its block's name has the goal's words": ("name", "name_precision"),
    "the enclosing block matches the goal": ("parent", "parent_coverage", "parent_precision"),
    "near words related to the goal's": ("kin", "kin3", "kin9"),
    "shares words with the lines that match the goal": (
        "echo",
        "echo_near",
        "echo_wide",
        "echo_block",
        "rank_echo_near",
    ),
    "reports a problem or is next to one": ("trouble", "is_context", "is_failure", "is_traceback"),
    "reports a problem": ("alarm", "is_error", "is_diagnostic"),
    "of a kind that is rare in this log": ("rare",),
    "near the end of the run": ("late",),
    "close to the best lines": ("to_best",),
    "close to lines with the goal's words": ("to_hit",),
    "resembles lines that answer such goals": (
        *("indent", "deeper", "length", "wordless", "comment", "calls", "digits", "repeats"),
        *("is_import", "is_signature", "is_heading", "in_fence"),
    ),
    "has the user's words": ("user_hits", "user_share"),
    "near the user's words": ("user_near", "user_wide", "user_block"),
    "has words of what the agent said": ("said_hits", "said_share"),
    "near words of what the agent said": ("said_near", "said_wide", "said_block"),
    "has words of the tool call": ("arguments_hits", "arguments_share"),
    "near words of the tool call": ("arguments_near", "arguments_wide", "arguments_block"),
    "has words of what the agent did before": ("recent_hits", "recent_share"),
    "near words of what the agent did before": ("recent_near", "recent_wide", "recent_block"),
    "has words that are rare in this result": ("rarity", "rarity_mean"),
    "next to lines that the conversation shows": ("seen_near", "seen_block"),
    "is where answers often are": (
        *("place", "block_place", "block_since", "block_until", "block_lines", "in_function", "in_class"),
    ),
}
_REASON_OF = {signal: words for words, signals in REASONS.items() for signal in signals}


@dataclass(frozen=True, slots=True)
class LineWhy:
    """A line, 1-based, its score between 0 and 1, and the reasons why it stayed or went."""

    line: int
    kept: bool
    score: float
    why: str


def explain(
    cuts: Sequence[Cut], protected: Sequence[str], scores: Floats, contributions: Mapping[str, Floats]
) -> list[LineWhy]:
    """Return one row per line; `contributions` are what each signal adds to the scores."""
    cut_for = {n: cut.reason for cut in cuts for n in range(cut.start, cut.end + 1)}
    added: dict[str, Floats] = {}  # signals with the same words are one reason
    for signal, column in contributions.items():
        if signal in _REASON_OF:
            added[_REASON_OF[signal]] = added.get(_REASON_OF[signal], 0.0) + column
    names = list(added)
    table = np.array(list(added.values())) if added else np.zeros((0, len(protected)))
    rows: list[LineWhy] = []
    for i, why in enumerate(protected):
        strongest = _strongest(names, table[:, i])
        if i + 1 in cut_for:
            outweighed = f"outweighed: {strongest}" if strongest else "nothing matches the goal"
            text = f"cut, {cut_for[i + 1]}; {outweighed}"
        else:
            kept_for = [reason for reason in (_PROTECTED.get(why, why), strongest) if reason]
            text = "; ".join(kept_for) or "fills a gap that would save less than its marker costs"
        rows.append(LineWhy(i + 1, i + 1 not in cut_for, round(float(scores[i]), 3), text))
    return rows


def _strongest(reasons: Sequence[str], parts: Floats) -> str:
    strongest = sorted(range(len(reasons)), key=lambda k: -parts[k])[:STRONGEST]
    return ", ".join(reasons[k] for k in strongest if parts[k] > FAINT)
