"""`bash`: a command, and everything that it wrote."""

import shutil
import signal
import threading
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

from pydantic import Field

from kimi_proxy.core import charset
from kimi_proxy.core.agent_tools import MAX_BASH_TIMEOUT_MS, Tools
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.tool import Integer
from kimi_proxy.proxy import commands
from kimi_proxy.proxy.commands import Command, Outcome
from kimi_proxy.proxy.spool import Spool
from kimi_proxy.proxy.workspace import Workspace
from kimi_proxy.services.keeping import Keeper
from kimi_proxy.services.tools import long_output, question
from kimi_proxy.services.tools.output import Output, Problem
from kimi_proxy.services.tools.pruning import Pruning
from kimi_proxy.services.tools.request import AgentTool

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
        "context_focus_question": question.SCHEMA,
    },
    "required": ["command"],
    "additionalProperties": False,
}


class Bash(question.Asked):
    # The kernel takes no argument over 128 KiB, and a character may need four bytes.
    command: str = Field(min_length=1, max_length=30_000, pattern=r"^[^\x00]*$")
    timeout_ms: Annotated[Integer, Field(ge=1, le=MAX_BASH_TIMEOUT_MS)] | None = None
    cwd: str = Field(default=".", min_length=1, max_length=4096)


def tool(
    settings: Tools,
    workspace: Workspace,
    keeper: Keeper,
    pruning: Pruning,
    env: Mapping[str, str],
    spool_bytes: int,
    threads: Executor,
) -> AgentTool[Bash]:
    """`threads` says how many commands may run at once."""
    child_env = commands.child_env(env, settings.bash_env)
    shell = shutil.which("bash", path=env.get("PATH")) or "sh"

    @asynccontextmanager
    async def bash(asked: Bash) -> AsyncIterator[Output]:
        timeout_ms = asked.timeout_ms or settings.bash_timeout_ms
        cwd = workspace.directory(asked.cwd)
        command = Command((shell, "-c", asked.command), cwd, child_env, timeout_ms / 1000)
        with Spool(spool_bytes) as spool:
            work = partial(_run, command, settings.max_processes, spool)
            outcome = await commands.in_thread(work, threads)
            yield _output(outcome, spool, keeper, _problem(outcome, timeout_ms, settings.max_processes))

    return AgentTool("bash", "Run a command", DESCRIPTION, SCHEMA, Bash, bash, pruning, read_only=False)


def _run(command: Command, max_processes: int, spool: Spool, stop: threading.Event) -> Outcome:
    return commands.run_guarded(command, max_processes, spool.write, stop)


def _output(outcome: Outcome, spool: Spool, keeper: Keeper, problem: Problem | None) -> Output:
    remarks = () if spool.size or problem else ("no output",)
    if outcome.leftovers and outcome.ending == "exited":
        remarks = (*remarks, f"{outcome.leftovers} background processes were ended with the command")
    return Output(
        spool.size,
        lambda: charset.decode(spool.end(spool.size)),
        partial(long_output.shown, spool, keeper),
        "logs",
        problem=problem,
        remarks=remarks,
        meta={"exit_code": outcome.exit_code, "command_ms": outcome.duration_ms},
        is_whole=not spool.lost,
    )


def _problem(outcome: Outcome, timeout_ms: int, max_processes: int) -> Problem | None:
    code = outcome.exit_code
    match outcome.ending:
        case "exited" if code == 0:
            return None
        case "exited" if code is not None and code < 0:
            return Problem("signal", f"ended by signal {-code} ({_signal_name(-code)})")
        case "exited":
            return Problem("exit_code", f"exit code {code}")
        case "timeout":
            return Problem("timeout", f"timed out after {timeout_ms} ms and was ended; this is its output so far")
        case "processes":
            return Problem("processes", f"ended: it started more than {max_processes} processes")
        case ending:
            return Problem(ending, "ended before it was done")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
