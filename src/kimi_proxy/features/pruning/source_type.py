"""The type of a text: by the name of its file, else by how its lines look."""

import re
from collections.abc import Sequence
from pathlib import PurePath

from kimi_proxy.core.prune import SourceType

SAMPLE_CHARS = 64 * 1024
SAMPLE_RUNS, RUN_LINES = 10, 20
SURE = 0.1  # of a sample: what fewer lines look like is not decided by it

_BY_SUFFIX: dict[str, SourceType] = {
    **dict.fromkeys((".log", ".out", ".err", ".trace", ".jsonl", ".ndjson"), "logs"),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".rst", ".adoc", ".tex", ".org"), "docs"),
    **dict.fromkeys(
        (
            *(".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".java", ".kt"),
            *(".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".rb", ".php", ".sh", ".bash", ".zsh", ".swift"),
            *(".scala", ".lua", ".pl", ".sql", ".css", ".scss", ".vue", ".svelte", ".html", ".xml"),
            *(".json", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".tf", ".proto", ".diff", ".patch"),
        ),
        "code",
    ),
}
_LOG_LINE = re.compile(
    r"^.{0,60}?(?:\b\d\d?:\d\d:\d\d|\b\d{4}[-/]\d\d[-/]\d\d\b|\b\d{8}[-T]|\b\d{9,13}\b|\b\d{6} \d{6}\b)"
    r"|^.{0,80}?\b(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b"
    r"|^(?:Traceback |PASSED|FAILED|npm (?:ERR!|WARN)|E {2,}|=+ .* =+$)"
)
_DOC_LINE = re.compile(r"^(?:#{1,6} \S|[-*+] \S|\d+\. \S|> |\|.*\|$| {0,8}[^\W\d_][^;{}=<>()]*(?: [^;{}=<>()]+){5})")
_CODE_LINE = re.compile(r"[;{}]\s*$|^\s*(?:def|class|import|from|func|fn|const|let|var|return|if|for|#include)\b")


def guess(name: str, text: str) -> SourceType:
    """Return the type by the suffix of `name`, else what most of a sample of lines look like; code by default."""
    by_name = _BY_SUFFIX.get(PurePath(name).suffix.lower())
    if by_name:
        return by_name
    lines = text[:SAMPLE_CHARS].split("\n")
    sample = _sample(lines)
    votes = _votes(sample)
    most, next_most, _ = sorted(votes.values(), reverse=True)
    # A few lines that say that something failed make a log of a text that looks like nothing else: read all of it.
    if sample is not lines and (most < SURE * len(sample) or most < 2 * next_most):
        votes = _votes(lines)
    return max(votes, key=lambda kind: votes[kind])


def _votes(lines: Sequence[str]) -> dict[SourceType, int]:
    heads = [line[:300] for line in lines]
    return {
        "code": sum(1 for line in heads if _CODE_LINE.search(line)),
        "logs": sum(1 for line in heads if _LOG_LINE.search(line)),
        "docs": sum(1 for line in heads if _DOC_LINE.search(line)),
    }


def _sample(lines: Sequence[str]) -> Sequence[str]:
    """Return lines from all over a text: three patterns for each of thousands would take longer than a cut of them.

    Runs of lines, because every nth line of a text that alternates may be of one sort.
    """
    if len(lines) <= SAMPLE_RUNS * RUN_LINES:
        return lines
    apart = (len(lines) - RUN_LINES) / (SAMPLE_RUNS - 1)
    starts = (int(run * apart) for run in range(SAMPLE_RUNS))
    return [line for start in starts for line in lines[start : start + RUN_LINES]]
