"""The signals of each line with respect to the agent's activity at the time of a tool call.

The forests `used` and `used output` refer to signals by these names, and by those in `signals.py`."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np

from kimi_proxy.core.prune import SOURCE_TYPES, CallContext, SourceType
from kimi_proxy.features.pruning.goal import STOP_WORDS, WORD, TextWords, parts
from kimi_proxy.features.pruning.structure.blocks import Floats, scale_to_one, spread

NEAR_LINES, WIDE_LINES = 3, 10
LINE_CHARS = 200

# By the words in a tool's name: agents call the same thing otherwise.
TOOLS = {
    "reads": re.compile(r"read|view|open|cat|fetch_file|get_file", re.I),
    "searches": re.compile(r"grep|search|find|glob|list|ls\b", re.I),
    "runs": re.compile(r"bash|shell|exec|terminal|command|console|run|stdin", re.I),
    "reports": re.compile(r"task|agent", re.I),
    "browses": re.compile(r"web|http|browser|url|navigate", re.I),
}
_COMMANDS = {
    "prints_file": re.compile(r"\b(?:cat|head|tail|sed|nl|less|awk|bat)\b"),
    "searches_by_command": re.compile(r"\b(?:grep|rg|find|ls|fd|ag|tree)\b"),
    "shows_diff": re.compile(r"\bgit\s+(?:diff|show|log|blame)\b|\bdiff\b"),
    "runs_tests": re.compile(r"\b(?:test|pytest|jest|vitest|lint|build|check|make|tsc|vet)\b"),
}


@dataclass(frozen=True, slots=True)
class CallSignals:
    """The signals that can be measured before the structure of a text is known, and what its blocks are measured by."""

    signals: Mapping[str, Floats]
    hits: Mapping[str, Floats]  # by whose words they are
    seen: Floats

    def with_blocks(self, block_means: Callable[[Floats], Floats]) -> dict[str, Floats]:
        """Return all signals; `block_means` returns for each line the mean of the block that holds it."""
        blocks = {f"{name}_block": scale_to_one(block_means(hits)) for name, hits in self.hits.items()}
        return {**self.signals, **blocks, "seen_block": block_means(self.seen)}


def call_signals(lines: Sequence[str], words: TextWords, context: CallContext, source_type: SourceType) -> CallSignals:
    """Return the signals of each line that the words, the call and the history of an agent add."""
    rarity = _rarity(words)
    total = words.per_line(rarity)
    signals = {
        "rarity": scale_to_one(total),
        "rarity_mean": scale_to_one(total / np.maximum(1, np.bincount(words.rows, minlength=len(lines)))),
    }
    hits_of: dict[str, Floats] = {}
    for name in ("user", "said", "arguments", "recent"):
        wanted = _stems(getattr(context, name))
        known = np.array([not wanted.isdisjoint(own) for own in words.parts], dtype=np.float64)
        hits = words.per_line(known * rarity) if len(known) else np.zeros(len(lines))
        signals[f"{name}_hits"] = scale_to_one(hits)
        signals[f"{name}_share"] = hits / np.maximum(total, 1e-9)
        signals[f"{name}_near"] = scale_to_one(spread(hits, NEAR_LINES))
        signals[f"{name}_wide"] = scale_to_one(spread(hits, WIDE_LINES))
        hits_of[name] = hits
    seen = np.zeros(len(lines))
    seen[[row for row in context.seen_rows if row < len(lines)]] = 1.0
    signals |= {"seen": seen, "seen_near": scale_to_one(spread(seen, NEAR_LINES))}
    types = {f"as_{name}": float(source_type == name) for name in SOURCE_TYPES}
    whole = types | output_signals(lines, context)
    signals |= {name: np.full(len(lines), value) for name, value in whole.items()}
    return CallSignals(signals, hits_of, seen)


def output_signals(lines: Sequence[str], context: CallContext) -> dict[str, float]:
    """Return the signals that are equal for all lines of an output, whose row numbers were removed."""
    suffix = PurePath(context.path.replace("\\", "/")).suffix.lower()
    command = context.arguments[:LINE_CHARS]
    is_run = TOOLS["runs"].search(context.tool) is not None
    chars = sum(map(len, lines))
    return {
        **{f"tool_{name}": float(form.search(context.tool) is not None) for name, form in TOOLS.items()},
        **{name: float(is_run and form.search(command) is not None) for name, form in _COMMANDS.items()},
        "chars": math.log1p(chars) / 8,
        "line_chars": min(1.0, chars / max(1, len(lines)) / LINE_CHARS),
        "results": math.log1p(context.results) / 4,
        "siblings": min(1.0, context.siblings / 8),
        "seen_share": len(context.seen_rows) / max(1, len(lines)),
        "is_test": float("test" in context.path.lower()),
        "is_page": float(suffix in (".md", ".mdx", ".rst", ".txt")),
        "is_config": float(suffix in (".json", ".toml", ".yaml", ".yml", ".lock", ".cfg", ".ini")),
        "has_path_name": float(bool(suffix)),
        "path_in_user": _names_path(context.path, context.user),
        "path_in_said": _names_path(context.path, context.said),
        "said_words": min(1.0, len(context.said) / 1000),
        "was_read": float(context.was_read),
        "was_edited": float(context.was_edited),
        "is_partial": float(context.is_partial),
        "failed": float(context.failed),
        "edits_by_quoting": float(context.edits_by_quoting),
    }


def _names_path(path: str, words: str) -> float:
    name = path.replace("\\", "/").rpartition("/")[2]
    return float(bool(name) and name in words)


def _stems(text: str) -> frozenset[str]:
    found = {part for word in WORD.findall(text) for part in parts(word)}
    return frozenset(part for part in found if len(part) > 2 and part not in STOP_WORDS)


def _rarity(words: TextWords) -> Floats:
    """Return for each word of the vocabulary how rare it is among the lines."""
    seen = np.bincount(words.ids, minlength=len(words.vocabulary))
    return np.log(1 + (words.line_count + 1) / (seen + 0.5)) / math.log(2 + words.line_count)
