"""`read`: a file or a window of it."""

import os
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.tool import Integer
from kimi_proxy.proxy import files
from kimi_proxy.proxy.client_roots import seen_by_client
from kimi_proxy.proxy.commands import in_thread
from kimi_proxy.proxy.files import Excerpt, Workspace
from kimi_proxy.services.originals import Keeper
from kimi_proxy.services.tools import ends, request
from kimi_proxy.services.tools.pruning import Pruning
from kimi_proxy.services.tools.request import AgentTool, ToolOutput

MAX_BYTES = 4 * 1024**2
TIMEOUT_S = 60.0
RADIUS = 20

DESCRIPTION = """\
Read a text file, or a window of it (start_line and end_line, or around_line and radius), whose lines are then \
printed as `N│ line`. With context_focus_question, lines that don't matter for it are replaced by ⟦PRUNÉ …⟧ markers; \
recover_text gives them back."""

_LINE: JsonObject = {"type": "integer", "minimum": 1}

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string"},
        "start_line": _LINE,
        "end_line": _LINE,
        "around_line": _LINE,
        "radius": {"type": "integer", "minimum": 0, "maximum": 500, "default": RADIUS},
        "max_tokens": request.MAX_TOKENS_SCHEMA,
        "context_focus_question": request.SCHEMA,
    },
    "required": ["file_path"],
    "additionalProperties": False,
}


class Read(request.AnswerArguments):
    file_path: str = Field(min_length=1, max_length=4096)
    start_line: Annotated[Integer, Field(ge=1)] | None = None
    end_line: Annotated[Integer, Field(ge=1)] | None = None
    around_line: Annotated[Integer, Field(ge=1)] | None = None
    radius: Annotated[Integer, Field(ge=0, le=500)] | None = None

    @field_validator("end_line")
    @classmethod
    def _not_before_the_start(cls, end: int | None, info: ValidationInfo) -> int | None:
        if end is not None and end < (info.data.get("start_line") or 1):
            raise ValueError("must not be before start_line")
        return end

    @field_validator("around_line")
    @classmethod
    def _one_way_to_name_a_window(cls, around: int | None, info: ValidationInfo) -> int | None:
        if around is not None and (info.data.get("start_line") or info.data.get("end_line")):
            raise ValueError("can be combined with radius, but not with start_line and end_line")
        return around

    @field_validator("radius")
    @classmethod
    def _around_something(cls, radius: int | None, info: ValidationInfo) -> int | None:
        if radius is not None and info.data.get("around_line") is None:
            raise ValueError("needs around_line")
        return radius

    def window(self) -> tuple[int, int | None] | None:
        """First and last line, or None for the whole file."""
        if self.around_line is not None:
            radius = RADIUS if self.radius is None else self.radius
            return max(1, self.around_line - radius), self.around_line + radius
        if self.start_line is None and self.end_line is None:
            return None
        return self.start_line or 1, self.end_line


def tool(workspace: Workspace, keeper: Keeper, pruning: Pruning, threads: Executor, max_tokens: int) -> AgentTool[Read]:
    """`max_tokens` limits a response without a question, unless the caller sets a limit."""

    @asynccontextmanager
    async def read(who: Caller, asked: Read) -> AsyncIterator[ToolOutput]:
        output = await in_thread(partial(_read, asked, seen_by_client(workspace)), threads)
        limit = asked.max_tokens or max_tokens
        first = output.first_line
        fit = partial(ends.fit_text, who, output.text(), first, keeper, limit, pruning.fail_open, output.origin)
        yield replace(output, shown=fit)

    return AgentTool("read", "Read a file", DESCRIPTION, SCHEMA, Read, read, pruning)


def _read(asked: Read, workspace: Workspace, stop: threading.Event) -> ToolOutput:
    deadline = time.monotonic() + TIMEOUT_S

    def check() -> None:
        if stop.is_set() or time.monotonic() > deadline:
            raise ToolFailed("timeout", f"{asked.file_path} could not be read within {TIMEOUT_S:.0f} s")

    window = asked.window()
    start, end = window or (1, None)
    with workspace.open_file(asked.file_path) as fd:
        size = os.fstat(fd).st_size
        try:
            found = files.excerpt(fd, start, end, MAX_BYTES, check)
        except ToolFailed as e:
            raise ToolFailed(e.reason, f"{asked.file_path}: {e}") from e
    text = found.text if window is None else _without_phantom(found)
    # An empty file has no line to number, and neither has what follows the last newline.
    has_lines = window is not None and not (found.ended and not found.text)
    first = found.first if has_lines else None
    return request.of_text(
        text, Origin("read", asked.file_path), first, remarks=_remarks(found, size), meta={"file_bytes": size}
    )


def _without_phantom(found: Excerpt) -> str:
    """A window doesn't print the empty line that a final newline opens."""
    lines = text_lines.split(found.text)
    ends_empty = found.ended and len(lines) > 1 and lines[-1] == ""
    return text_lines.join(lines[:-1]) if ends_empty else found.text


def _remarks(found: Excerpt, size: int) -> tuple[str, ...]:
    if not found.more:
        return ()
    if found.split:
        too_long = f"cut within line {found.last}, which is too long to be shown whole: grep shows it around a match"
        return (too_long,)
    return (f"cut after line {found.last} of a file of {size} bytes: read on with start_line {found.last + 1}",)
