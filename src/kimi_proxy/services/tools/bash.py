"""`bash`: a command, and everything that it wrote."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

from pydantic import Field

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core import tokens
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.sections import MAX_BASH_TIMEOUT_MS, ToolSettings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.tool import Integer
from kimi_proxy.proxy import commands
from kimi_proxy.proxy.client_roots import seen_by_client
from kimi_proxy.proxy.commands import CommandOutcome
from kimi_proxy.proxy.files import TAIL_BYTES, Spool, Workspace
from kimi_proxy.proxy.process import Command
from kimi_proxy.services.fail_open import FailOpen
from kimi_proxy.services.originals import Keeper, keep_parts
from kimi_proxy.services.tools import ends, request
from kimi_proxy.services.tools.ends import READ_BYTES_PER_TOKEN
from kimi_proxy.services.tools.pruning import Pruning
from kimi_proxy.services.tools.request import AgentTool, ToolOutput, ToolProblem

WHOLE_BYTES = 4 * 1024**2  # without a store, outputs up to here go out whole
PART_BYTES = 4 * 1024**2


async def fit_output(
    who: Caller, spool: Spool, keeper: Keeper, max_tokens: int, fail_open: FailOpen, origin: Origin
) -> str:
    """Return the whole output if it has so many tokens, else what failed or is odd in it, else its two ends."""
    if spool.size <= max(max_tokens * READ_BYTES_PER_TOKEN, ends.MAX_CHOSEN_CHARS) and not spool.lost:
        text = await asyncio.to_thread(lambda: text_lines.decode(spool.end(spool.size)))
        if len(text) <= max_tokens or await asyncio.to_thread(tokens.count, text) <= max_tokens:
            return text
        fitting = await fail_open.run("choose", ends.choose(who, text, keeper, max_tokens, origin), lambda code: None)
        if fitting is not None:
            return fitting
    head, tail = await asyncio.to_thread(_ends, spool, max_tokens)
    if len(head) + len(tail) >= spool.size:
        return text_lines.decode(spool.end(spool.size))
    try:
        return await _abbreviate(who, spool, keeper, head, tail)
    except StoreUnavailable as e:
        return show_unstored(spool, max_tokens, str(e))


def show_unstored(spool: Spool, max_tokens: int, why: str) -> str:
    """Return the whole output if it is not too long for that, else its ends with a word about the rest."""
    if spool.size <= WHOLE_BYTES and not spool.lost:
        return text_lines.decode(spool.end(spool.size))
    head, tail = _ends(spool, max_tokens)
    missing = spool.size - len(head) - len(tail)
    return _join(head, f"[kimi-proxy] {missing} bytes are missing here: {why}", tail)


async def _abbreviate(who: Caller, spool: Spool, keeper: Keeper, head: bytes, tail: bytes) -> str:
    end = min(spool.kept, spool.size - len(tail))
    marker = await keep_parts(who, keeper, _parts(spool, len(head), end), head.count(b"\n") + 1)
    markers = [marker] if marker else []
    if spool.lost:
        why = "the disk was full" if spool.full else "tools.max_output_bytes was reached"
        markers.append(f"[kimi-proxy] {spool.lost} bytes of output were not kept here: {why}")
    return _join(head, text_lines.join(markers), tail)


def _ends(spool: Spool, max_tokens: int) -> tuple[bytes, bytes]:
    """Return whole lines from the start and from the end, or what fits of lines that are too long."""
    reach = max_tokens * READ_BYTES_PER_TOKEN
    head = ends.head(spool.read(0, reach), max_tokens // 2)
    if spool.kept < spool.size:  # output after the kept part is stored nowhere else: trim none of it
        return head, spool.end(TAIL_BYTES)
    return head, ends.tail(spool.end(reach), max_tokens // 2)


async def _parts(spool: Spool, start: int, end: int) -> AsyncIterator[bytes]:
    while start < end:
        raw = await asyncio.to_thread(spool.read, start, min(PART_BYTES + 3, end - start))
        part = raw
        if end - start > PART_BYTES:
            newline = raw.rfind(b"\n", 0, PART_BYTES)
            part = raw[: newline + 1] if newline >= 0 else text_lines.clip_utf8(raw, PART_BYTES)
        text = await asyncio.to_thread(text_lines.decode, part)
        yield await asyncio.to_thread(text.encode)
        start += len(part)


def _join(head: bytes, middle: str, tail: bytes) -> str:
    gap = "" if head.endswith(b"\n") else "\n"
    return f"{text_lines.decode(head)}{gap}{middle}\n{text_lines.decode(tail)}"


DESCRIPTION = """\
Run a bash command; stdout and stderr come together, in order. Nothing that it starts outlives it. Output of any \
size: a long middle is replaced by a marker. With context_focus_question, lines that don't matter for it are too; \
recover_text gives them back."""

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "command": {"type": "string"},
        "timeout_ms": {"type": "integer", "minimum": 1, "maximum": MAX_BASH_TIMEOUT_MS},
        "cwd": {"type": "string"},
        "max_tokens": request.MAX_TOKENS_SCHEMA,
        "context_focus_question": request.SCHEMA,
    },
    "required": ["command"],
    "additionalProperties": False,
}


class Bash(request.AnswerArguments):
    # The kernel takes no argument over 128 KiB, and a character may need four bytes.
    command: str = Field(min_length=1, max_length=30_000, pattern=r"^[^\x00]*$")
    timeout_ms: Annotated[Integer, Field(ge=1, le=MAX_BASH_TIMEOUT_MS)] | None = None
    cwd: str = Field(default=".", min_length=1, max_length=4096)


def tool(
    settings: ToolSettings,
    workspace: Workspace,
    keeper: Keeper,
    pruning: Pruning,
    env: Mapping[str, str],
    spool_bytes: int,
    threads: Executor,
) -> AgentTool[Bash]:
    """`threads` limits the number of concurrent commands."""
    child_env = commands.child_env(env, settings.bash_env)
    shell = shutil.which("bash", path=env.get("PATH")) or "sh"

    @asynccontextmanager
    async def bash(who: Caller, asked: Bash) -> AsyncIterator[ToolOutput]:
        timeout_ms = asked.timeout_ms or settings.bash_timeout_ms
        cwd = seen_by_client(workspace).directory(asked.cwd)
        command = Command((shell, "-c", asked.command), child_env, cwd)
        with Spool(spool_bytes) as spool:
            run = partial(commands.run_guarded, command, timeout_ms / 1000, settings.max_processes, spool.write)
            outcome = await commands.in_thread(run, threads)
            limit = asked.max_tokens or settings.max_tokens
            problem = _problem(outcome, timeout_ms, settings.max_processes)
            origin = Origin("bash", command=asked.command, failed=problem is not None)
            shows = partial(fit_output, who, spool, keeper, limit, pruning.fail_open, origin)
            unstored = partial(show_unstored, spool, limit)
            yield _output(outcome, spool, shows, unstored, problem, origin)

    return AgentTool("bash", "Run a command", DESCRIPTION, SCHEMA, Bash, bash, pruning, read_only=False)


def _output(
    outcome: CommandOutcome,
    spool: Spool,
    shows: Callable[[], Awaitable[str]],
    unstored: Callable[[str], str],
    problem: ToolProblem | None,
    origin: Origin,
) -> ToolOutput:
    remarks = () if spool.size or problem else ("no output",)
    if outcome.leftovers and outcome.ending == "exited":
        remarks = (*remarks, f"{outcome.leftovers} background processes were ended with the command")
    return ToolOutput(
        spool.size,
        lambda: text_lines.decode(spool.end(spool.size)),
        shows,
        unstored,
        origin,
        problem=problem,
        remarks=remarks,
        meta={"exit_code": outcome.exit_code, "command_ms": outcome.duration_ms},
        is_whole=not spool.lost,
    )


def _problem(outcome: CommandOutcome, timeout_ms: int, max_processes: int) -> ToolProblem | None:
    code = outcome.exit_code
    match outcome.ending:
        case "exited" if code == 0:
            return None
        case "exited" if code is not None and code < 0:
            return ToolProblem("signal", f"ended by signal {-code} ({_signal_name(-code)})")
        case "exited":
            return ToolProblem("exit_code", f"exit code {code}")
        case "timeout":
            remark = f"timed out after {timeout_ms} ms and was ended; this is its output so far"
            return ToolProblem("timeout", remark, timeout_ms)
        case "processes":
            return ToolProblem("processes", f"ended: it started more than {max_processes} processes")
        case ending:
            return ToolProblem(ending, "ended before it was finished")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
