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
    **dict.fromkeys((".md", ".markdown", ".mdx", ".rst", ".adoc", ".tex", ".org", ".html", ".htm"), "docs"),
    **dict.fromkeys(
        (
            *(".py", ".pyi", ".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".java", ".kt"),
            *(".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".rb", ".php", ".sh", ".bash", ".zsh", ".swift"),
            *(".scala", ".lua", ".pl", ".sql", ".css", ".scss", ".vue", ".svelte", ".xml"),
            *(".clj", ".cljs", ".edn", ".el", ".lisp", ".scm", ".ml", ".mli", ".hs", ".erl", ".ex", ".exs", ".hrl"),
            *(".pm", ".r", ".jl", ".nim", ".zig", ".dart", ".groovy", ".gradle", ".sol", ".v", ".sv", ".vhd", ".vhdl"),
            *(".f90", ".f", ".m", ".mm", ".pas", ".ada", ".adb", ".ads", ".cmake", ".mk", ".ps1", ".tcl", ".awk"),
            *(".fs", ".fsx", ".vb", ".cob", ".asm", ".s", ".svg", ".dat", ".csv", ".tsv", ".less", ".sass", ".graphql"),
            *(".json", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".tf", ".proto", ".diff", ".patch"),
        ),
        "code",
    ),
}
# Each begins with a set of characters rather than with `\b` or what may stand before: the search then leaps to the
# next of them. `(?<!\w.)` says that a word begins there.
_CLOCK = re.compile(r"\d(?<!\w.)(?:\d?:\d\d:\d\d|\d{3}[-/]\d\d[-/]\d\d\b|\d{7}[-T]|\d{8,12}\b|\d{5} \d{6}\b)")
_LEVEL = re.compile(
    r"[CDEFINTW](?<!\w.)(?:(?<=T)RACE|(?<=D)EBUG|(?<=I)NFO|(?<=N)OTICE|(?<=W)ARN(?:ING)?|(?<=E)RROR|(?<=F)ATAL"
    r"|(?<=C)RITICAL)\b"
)
CLOCK_CHARS, LEVEL_CHARS = 60, 80  # spaces allowed before them
_LOG_LINE = re.compile(
    r"Traceback |PASSED|FAILED|npm (?:ERR!|WARN)|E {2,}|=+ .* =+$|(?:PASS|FAIL|ok)[ :]|[ -]{0,4}--- (?:PASS|FAIL|SKIP)"
    r"|(?:warning|error|note)(?:\[\w+\])?: |[-dlbcps][-rwxsStT]{9}[.+@ ]"
    r"|\s*(?:Compiling|Checking|Downloading|Downloaded|Installing|Resolving|Fetching|Building) \S"
    r"| *(?:--> \S+:\d|\d{0,6} \|(?: |$))"  # how compilers point to a line
)
_SETTING = re.compile(r"\s*[\w.-]+ ?[=:] ?\S|\s*\[[\w. -]+\]$")
_DOC_LINE = re.compile(
    r"#{1,6} \S|[-*+] \S|\d+\. \S|> |\|.*\|$"
    r"| {0,8}[^\W\d_][^;{}=<>() ]*+(?: [^;{}=<>()][^;{}=<>() ]*+){5}"  # six words
)
_CODE_LINE = re.compile(
    r"\s*(?:def|class|import|from|func|fn|const|let|var|return|if|for|#include)\b|[ \t]{0,40}<[/!a-zA-Z]"
)
_CODE_ENDS = (";", "{", "}")


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
    if votes["logs"] >= votes["docs"] - SURE * len(sample) and votes["logs"] >= len(sample) / 2:
        return "logs"  # a sentence behind a time or a level was logged, not written
    if not any(votes.values()) and len(lines) >= RUN_LINES and not _has_settings(sample):
        return "logs"  # output of a command: a listing, a zone, a list of names
    return max(votes, key=lambda kind: votes[kind])


def _has_settings(lines: Sequence[str]) -> bool:
    return sum(1 for line in lines if _SETTING.match(line)) > len(lines) / 2


def _votes(lines: Sequence[str]) -> dict[SourceType, int]:
    heads = [line[:300] for line in lines]
    return {
        "code": sum(1 for line in heads if line.rstrip().endswith(_CODE_ENDS) or _CODE_LINE.match(line)),
        "logs": sum(1 for line in heads if is_logged(line)),
        "docs": sum(1 for line in heads if _DOC_LINE.match(line)),
    }


def is_logged(line: str) -> bool:
    """Return whether a line begins with a time or a level, or is from a test run or a build."""
    clock = _CLOCK.search(line)
    if clock is not None and clock.start() <= CLOCK_CHARS:
        return True
    level = _LEVEL.search(line)
    return (level is not None and level.start() <= LEVEL_CHARS) or _LOG_LINE.match(line) is not None


def _sample(lines: Sequence[str]) -> Sequence[str]:
    """Return lines from all over a text: three patterns for each of thousands would take longer than a cut of them.

    Runs of lines, because every nth line of a text that alternates may be of one sort.
    """
    if len(lines) <= SAMPLE_RUNS * RUN_LINES:
        return lines
    apart = (len(lines) - RUN_LINES) / (SAMPLE_RUNS - 1)
    starts = (int(run * apart) for run in range(SAMPLE_RUNS))
    return [line for start in starts for line in lines[start : start + RUN_LINES]]
