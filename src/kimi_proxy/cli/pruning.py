"""Prune a text, get its lines back, ask why: straight on the engine and the store, with or without a server."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kimi_proxy.cli import ranges as line_ranges
from kimi_proxy.cli.offline import with_runtime
from kimi_proxy.cli.progress import progress
from kimi_proxy.cli.streams import STDIN, colour, read, remark, write, write_json
from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import Options, Question

if TYPE_CHECKING:
    from kimi_proxy.core.types import JsonObject
    from kimi_proxy.features.pruning.explain import LineWhy
    from kimi_proxy.services.prune_answer import PruneAnswer
    from kimi_proxy.services.pruner import Explanation
    from kimi_proxy.services.runtime import Runtime

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead, for programs.")]
PruneId = Annotated[str, typer.Argument(metavar="ID", help="The prune_id that a marker names (prn_…).")]

FAINT = "2"
SCOPE = "local"  # what the pruner's doors on this machine share

ADVICE = {
    "timeout": "time ran out, so nothing was cut: raise --timeout-ms",
    "input_too_large": "the text is longer than max_input_chars, so nothing was cut: prune it in parts",
    "constraints_unmet": "the limits leave nothing to cut: raise --max-prune-ratio or lower --min-keep-lines",
    "recovery_unavailable": "the original could not be stored, so nothing was cut: run kimi-proxy doctor",
    "deepinfra_error": "DeepInfra gave no scores, so this machine's own decided",
}


def prune(
    goal: Annotated[str, typer.Option("--goal", "-g", help="What you want to find out, in your own words.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The text; - is standard input.")] = STDIN,
    source_type: Annotated[
        Literal["auto", "code", "logs", "docs"],
        typer.Option(help="What the text is; auto looks at the file's name, then at its lines."),
    ] = "auto",
    max_prune_ratio: Annotated[
        float, typer.Option(min=0, max=1, help="The share of lines that may go, at most.")
    ] = 0.7,
    min_keep_lines: Annotated[int, typer.Option(min=0, help="The number of lines that stay, at least.")] = 20,
    timeout_ms: Annotated[int, typer.Option(min=1, help="After this long the text comes back whole.")] = 10_000,
    annotate: Annotated[
        bool, typer.Option("--annotate/--no-annotate", help="Put its number before each line.")
    ] = False,
    markers: Annotated[bool, typer.Option("--markers/--no-markers", help="Put a marker where lines were cut.")] = True,
    as_json: Json = False,
) -> None:
    """Print the lines of FILE that matter for a goal.

    What is cut is stored first: `kimi-proxy recover` brings it back, byte for byte.
    What was saved is told on standard error, so that the output can be piped.

    Example: pytest 2>&1 | kimi-proxy prune - --goal "why does test_login fail?"
    """
    from kimi_proxy.features.source_type import guess

    text = read(file)
    kind = guess(file.name, text) if source_type == "auto" else source_type
    question = Question(text, goal, kind, Options(max_prune_ratio, min_keep_lines, timeout_ms, annotate, markers))
    with progress("pruning", len(text)):
        answer = with_runtime(lambda runtime: runtime.pruner.prune(question))
    _tell(answer, kind)
    write_json(answer.json()) if as_json else write(answer.pruned.text)


def _tell(answer: PruneAnswer, kind: str) -> None:
    pruned = answer.pruned
    for code in pruned.warnings:
        remark(f"{code}: {ADVICE[code]}" if code in ADVICE else code)
    if not pruned.annotations:
        lines = "1 line" if pruned.original_lines == 1 else f"{pruned.original_lines} lines"
        remark(f"{lines} of {kind}, nothing cut")
        return
    kept = pruned.original_lines - pruned.pruned_lines
    remark(
        f"{kept} of {pruned.original_lines} lines of {kind} kept, "
        f"{pruned.tokens_after} of {pruned.tokens_before} tokens; "
        f"the rest: kimi-proxy recover {answer.prune_id}"
    )


def recover(
    prune_id: PruneId,
    ranges: Annotated[
        str, typer.Argument(metavar="LINES", help="For instance 10-20,40,60-; without it, everything.")
    ] = "",
    numbers: Annotated[bool, typer.Option("--numbers", help="Put its number before each line.")] = False,
    as_json: Json = False,
) -> None:
    """Print the original lines behind a marker, exactly as they were.

    Example: kimi-proxy recover prn_0123456789abcdef 120-154
    """
    from kimi_proxy.features.recovery import recover as pick

    text = with_runtime(lambda runtime: _original(runtime, prune_id))
    last = len(split(text))
    chosen = line_ranges.parse(ranges, last) if ranges else line_ranges.whole(last)
    raw = pick(text, chosen, numbers) if chosen else ""
    if as_json:
        asked = [{"start_line": start, "end_line": end} for start, end in chosen]
        metadata = {"prune_id": prune_id, "ranges": asked, "line_numbering": "original"}
        write_json({"raw_text": raw, "metadata": metadata})
    else:
        # A line that isn't the last one ends in a newline, here as in the original.
        write(raw + "\n" if chosen and chosen[-1][1] < last else raw)


async def _original(runtime: Runtime, prune_id: str) -> str:
    from kimi_proxy.services.fingerprint import decoded

    return decoded((await runtime.store.original(SCOPE, prune_id)).text)


def explain(prune_id: PruneId, as_json: Json = False) -> None:
    """Print every line of a text with why it stayed or went.

    Each line has its number, + if it stayed or - if it went, and its score for the goal, between 0 and 1.
    """
    explanation = with_runtime(lambda runtime: runtime.pruner.explain(prune_id))
    if as_json:
        write_json(_told(explanation))
    else:
        lines = split(explanation.question.text)
        write("".join(_row(why, lines[why.line - 1]) for why in explanation.lines))


def _row(why: LineWhy, line: str) -> str:
    row = f"{why.line:>5} {'+' if why.kept else '-'} {why.score:.2f}  {line}  ← {why.why}"
    return (row if why.kept else colour(row, FAINT)) + "\n"


def _told(explanation: Explanation) -> JsonObject:
    question = explanation.question
    return {
        "prune_id": explanation.prune_id,
        "goal_hint": question.goal,
        "source_type": question.source_type,
        "lines": [asdict(why) for why in explanation.lines],
    }
