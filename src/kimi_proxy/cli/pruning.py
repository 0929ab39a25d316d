"""`kimi-proxy prune`, `recover` and `explain`: on the engine and the store, with or without a server."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from kimi_proxy.cli import console
from kimi_proxy.cli.progress import progress_bar
from kimi_proxy.core.errors import InvalidRange
from kimi_proxy.core.prune import Options, Question, SourceType
from kimi_proxy.prune_options import PRUNE_OPTIONS, PruneOption
from kimi_proxy.quick import TEXT_SAMPLE, is_binary, savings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kimi_proxy.core.caller import Caller
    from kimi_proxy.features.pruning.explain import LineWhy
    from kimi_proxy.services.pruner import Pruner
    from kimi_proxy.services.recover import ReadBack
    from kimi_proxy.services.store.protocols import Store


Range = tuple[int, int]

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})?)?", re.ASCII)


def parse(text: str, last: int) -> tuple[Range, ...]:
    """Return the ranges in `text`. A missing or too large end becomes `last`. Raise InvalidRange."""
    return tuple(_range(part.strip(), last) for part in text.split(","))


def _range(part: str, last: int) -> Range:
    found = _RANGE.fullmatch(part)
    if found is None:
        raise InvalidRange(f"{part[:40]!r} is not a line range: write 10-20, 40 or 60-, separated by commas")
    start = int(found[1])
    end = int(found[2]) if found[2] else start if "-" not in part else max(start, last)
    if not 1 <= start <= end:
        raise InvalidRange(
            f"{part!r} is not a line range: lines count from 1, and the end must not be before the start"
        )
    return start, max(start, min(end, last))


LARGE_CHARS = 256 * 1024


def progress(what: str, chars: int) -> AbstractContextManager[object]:
    """Show elapsed time for a large text if standard error is a terminal."""
    return progress_bar(f"{what} {chars:,} characters") if chars >= LARGE_CHARS else nullcontext()


T = TypeVar("T")


def with_store(job: Callable[[Store, Caller], Awaitable[T]]) -> T:
    """Open the configured store, return the result of `job` on it, and close it.

    In a team the caller is the person of KIMI_PROXY_TOKEN.
    """
    import asyncio

    from kimi_proxy.assembly.store import own_store

    console.log_errors_only()
    config = console.load().config

    async def open_and_run() -> T:
        async with own_store(config) as (store, who):
            return await job(store, who)

    return asyncio.run(open_and_run())


def with_pruner(job: Callable[[Pruner, Caller], Awaitable[T]]) -> T:
    """Return the result of `job` on a pruner with its store, without loading the rest of the server."""
    from kimi_proxy.services.pruner import Pruner, reranker
    from kimi_proxy.services.workers.pool import Workers

    config = console.load().config

    async def with_workers(store: Store, who: Caller) -> T:
        # For a single text, a thread is faster than a worker process that has to import everything again.
        workers = Workers(thread_max_chars=LARGE_CHARS)
        rerank = reranker(config)
        try:
            return await job(Pruner(config.mcp_pruner, store.originals, workers, rerank), who)
        finally:
            await workers.close()
            if rerank is not None:
                await rerank.close()

    return with_store(with_workers)


prune_id_argument = click.argument("prune_id", metavar="ID", help="The prune_id in a marker (prn_…).")

FAINT = "2"


Command = TypeVar("Command", bound="Callable[..., None]")


def prune_options(command: Command) -> Command:
    """Add the options of PRUNE_OPTIONS."""
    for option in reversed(PRUNE_OPTIONS):
        # click treats a default of None as a value, so the option would not be required.
        given = {"required": True} if option.default is None else {"default": option.default, "show_default": True}
        command = click.option(*option.names, option.key, type=_type(option), help=option.help, **given)(command)
    return command


def _type(option: PruneOption) -> click.ParamType[object] | type:
    if option.choices:
        return click.Choice(option.choices)
    if option.limits is not None:
        return (click.IntRange if option.type is int else click.FloatRange)(*option.limits)
    return option.type


@click.command()
@click.argument("file", type=console.PATH, default="-", help="A text file, or - for standard input.  [default: -]")
@prune_options
@console.json_option
def prune(
    file: Path,
    goal: str,
    source_type: SourceType | Literal["auto"],
    max_prune_ratio: float,
    min_keep_lines: int,
    timeout_ms: int,
    annotate_lines: bool,
    include_markers: bool,
    as_json: bool,
) -> None:
    """Print the lines of FILE that matter for a goal.

    The original is stored first: `kimi-proxy recover` restores it byte for byte.
    The savings are printed on standard error, so that the output can be piped.

    Example: pytest 2>&1 | kimi-proxy prune - --goal "why does test_login fail?"
    """
    from kimi_proxy.features.pruning.source_type import guess

    text = console.read(file)
    if is_binary(console.encode(text[:TEXT_SAMPLE])):
        raise click.BadParameter(f"{file} is a binary file: prune needs a text file", param_hint="FILE")
    limit = console.load().config.mcp_pruner.max_input_chars
    if len(text) > limit and file != console.STDIN:
        problem = f"{file} has {len(text):,} characters, more than max_input_chars ({limit:,})"
        raise click.BadParameter(f"{problem}: prune it in parts, such as: head -n 20000 {file} | kimi-proxy prune -")
    kind = guess(file.name, text) if source_type == "auto" else source_type
    limits = Options(max_prune_ratio, min_keep_lines, timeout_ms, annotate_lines, include_markers)
    question = Question(text, goal, kind, limits)
    with progress("pruning", len(text)):
        answer = with_pruner(lambda pruner, who: pruner.prune(who, question)).json()
    for line in savings(answer, kind):
        console.remark(line)
    console.write_json(answer) if as_json else console.write(str(answer["pruned_text"]))


@click.command()
@prune_id_argument
@click.argument("ranges", default="", metavar="[LINES]", help="Such as 10-20,40,60-; without it, everything.")
@click.option("--numbers", is_flag=True, help="Prefix each line with its number.")
@console.json_option
def recover(prune_id: str, ranges: str, numbers: bool, as_json: bool) -> None:
    """Print the original lines behind a marker, exactly as they were.

    Example: kimi-proxy recover prn_0123456789abcdef 120-154
    """
    found = with_store(lambda store, who: _recover(store, who, prune_id, ranges, numbers, as_json))
    if not as_json:
        # Only the last line of the original may lack a final newline.
        ends_inside = found.numbering == "lines" and found.ranges and found.ranges[-1][1] < found.last
        console.write(found.text + "\n" if ends_inside else found.text)
        return
    listed = [{"start_line": start, "end_line": end} for start, end in found.ranges]
    metadata = {"prune_id": prune_id, "ranges": listed, "line_numbering": "original", "numbering": found.numbering}
    console.write_json({"raw_text": found.text, "metadata": metadata})


async def _recover(store: Store, who: Caller, prune_id: str, ranges: str, numbers: bool, as_json: bool) -> ReadBack:
    """Return the wanted lines. Of an original that is kept in parts all but the last are written at once."""
    from kimi_proxy.features.recovery import Selection
    from kimi_proxy.services.recover import ReadBack, Recovery

    original = await Recovery(store.originals).open(who, prune_id)
    if ranges or numbers or as_json:
        return await original.read(Selection(parse(ranges, original.last) if ranges else (), with_numbers=numbers))
    last = ""
    async for text in original.texts():
        console.write_bytes(console.encode(last))
        last = text
    return ReadBack(last, original.numbering, original.all_lines, original.last, original.chars)


@click.command()
@prune_id_argument
@console.json_option
def explain(prune_id: str, as_json: bool) -> None:
    """Print every line of a text and why it was kept or cut.

    Each line has its number, + if it was kept or - if it was cut, and its score for the goal, from 0 to 1.
    """
    explanation = with_pruner(lambda pruner, who: pruner.explain(who, prune_id))
    if as_json:
        question = explanation.question
        origin = {"goal_hint": question.goal, "source_type": question.source_type}
        console.write_json({"prune_id": explanation.prune_id, **origin, "lines": explanation.lines})
    else:
        rows = (_row(why, explanation.texts[why.line - 1]) for why in explanation.lines)
        console.write("".join(rows))


def _row(why: LineWhy, line: str) -> str:
    row = f"{why.line:>5} {'+' if why.kept else '-'} {why.score:.2f}  {line}  ← {why.why}"
    return (row if why.kept else console.colour(row, FAINT)) + "\n"
