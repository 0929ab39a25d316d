"""`grep`: lines of files that match a pattern."""

import stat
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.tool import Integer
from kimi_proxy.proxy import commands
from kimi_proxy.proxy.search import Found, Place, Query, search
from kimi_proxy.proxy.workspace import Workspace
from kimi_proxy.services.tools import hits, output, question
from kimi_proxy.services.tools.hits import Shown
from kimi_proxy.services.tools.output import Output, Problem
from kimi_proxy.services.tools.pruning import Pruning
from kimi_proxy.services.tools.request import AgentTool

TIMEOUT_S = 30.0
MAX_MATCHES = 200

DESCRIPTION = """\
Search files for regular expressions (ripgrep's syntax; ignored and hidden files are left out) and print \
`path:line:content`, or `path-line-content` for lines around a match. With context_focus_question, hits that don't \
matter for it are replaced by markers; recover_text gives them back."""

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string"},
        "patterns": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 50},
        "path": {"type": "string", "default": "."},
        "glob": {"type": "string"},
        "context_lines": {"type": "integer", "minimum": 0, "maximum": 50, "default": 0},
        "max_matches": {"type": "integer", "minimum": 1, "maximum": 1000, "default": MAX_MATCHES},
        "context_focus_question": question.SCHEMA,
    },
    "additionalProperties": False,
}

Pattern = Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00]*$")]


class Grep(question.Asked):
    pattern: Pattern | None = None
    patterns: list[Pattern] | None = Field(default=None, min_length=1, max_length=50, validate_default=True)
    path: str = Field(default=".", min_length=1, max_length=4096)
    glob: Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")] | None = None
    context_lines: Annotated[Integer, Field(ge=0, le=50)] = 0
    max_matches: Annotated[Integer, Field(ge=1, le=1000)] = MAX_MATCHES

    @field_validator("patterns")
    @classmethod
    def _one_or_many(cls, patterns: list[str] | None, info: ValidationInfo) -> list[str] | None:
        if "pattern" in info.data and (patterns is None) == (info.data["pattern"] is None):
            raise ValueError("give either pattern or patterns")
        return patterns

    def query(self) -> Query:
        patterns = self.patterns if self.pattern is None else [self.pattern]
        return Query(tuple(patterns or ()), self.glob, self.context_lines, self.max_matches)


def tool(workspace: Workspace, pruning: Pruning, env: Mapping[str, str], rg: str | None) -> AgentTool[Grep]:
    child_env = commands.child_env(env)

    @asynccontextmanager
    async def grep(asked: Grep) -> AsyncIterator[Output]:
        yield await commands.in_thread(partial(_grep, asked, workspace, child_env, rg))

    return AgentTool("grep", "Search files", DESCRIPTION, SCHEMA, Grep, grep, pruning)


def _grep(asked: Grep, workspace: Workspace, env: Mapping[str, str], rg: str | None, stop: threading.Event) -> Output:
    real = workspace.real(asked.path)
    place = _place(asked.path, real)
    found = search(asked.query(), place, env, TIMEOUT_S, stop, rg)
    if not found.hits and found.outcome.errors.strip() and found.outcome.exit_code != 1:
        raise ToolFailed("search_failed", found.outcome.errors.strip())
    shown = hits.shown(found.hits, workspace, place, asked.path, asked.context_lines)
    remarks = _remarks(found, shown)
    return output.of_text(shown.text, "docs", problem=_problem(found), remarks=remarks, meta={"matches": found.total})


def _place(path: str, real: Path) -> Place:
    try:
        mode = real.lstat().st_mode
    except OSError as e:
        raise ToolFailed("not_found", f"{path} does not exist") from e
    if stat.S_ISDIR(mode):
        return Place(real)
    if stat.S_ISREG(mode):
        return Place(real.parent, real.name)
    raise ToolFailed("not_a_file", f"{path} is neither a file nor a directory")


def _remarks(found: Found, shown: Shown) -> tuple[str, ...]:
    said: list[str] = [] if shown.text else ["no match"]
    if found.total is None or shown.matches + shown.unread < found.total:
        total = "many" if found.total is None else found.total
        said.append(f"{shown.matches} of {total} matches shown: narrow the pattern, path or glob")
    if shown.unread:
        said.append(f"{shown.unread} matches in files that may not be read were left out")
    return tuple(said)


def _problem(found: Found) -> Problem | None:
    outcome = found.outcome
    if outcome.ending == "timeout":
        return Problem("timeout", f"timed out after {TIMEOUT_S:.0f} s: these are the hits so far")
    # 1 is "no match"; xargs says 123 for it. Both are told apart from errors by what was said.
    if outcome.ending == "exited" and outcome.exit_code not in (0, 1) and outcome.errors.strip():
        return Problem("search_failed", f"the search was not complete: {_one_line(outcome.errors)}")
    return None


def _one_line(errors: str) -> str:
    lines = errors.strip().split("\n")
    more = f" | and {len(lines) - 5} more" if len(lines) > 5 else ""
    return " | ".join(line.strip()[:300] for line in lines[:5]) + more
