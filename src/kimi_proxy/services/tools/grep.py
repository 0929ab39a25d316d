"""`grep`: lines of files that match a pattern."""

import os
import stat
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path, PurePath
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import ToolFailed
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.tool import Integer
from kimi_proxy.proxy import commands
from kimi_proxy.proxy.client_roots import seen_by_client
from kimi_proxy.proxy.files import Workspace
from kimi_proxy.proxy.search import Found, Hit, Place, Query, search
from kimi_proxy.services.tools import request
from kimi_proxy.services.tools.pruning import Pruning
from kimi_proxy.services.tools.request import AgentTool, ToolOutput, ToolProblem

LINE_BYTES = 500
MAX_TEXT_CHARS = 1024**2


@dataclass(frozen=True, slots=True)
class Shown:
    text: str
    matches: int
    unread: int  # matches in files that must not be read, or that changed in the meantime


def show_hits(hits: Sequence[Hit], workspace: Workspace, place: Place, path: str, context_lines: int) -> Shown:
    """`path:line:content` for each match, `path-line-content` for the lines around it."""
    lines: list[str] = []
    matches = unread = chars = 0
    for name, group in groupby(hits, key=lambda hit: hit.path):
        found = list(group)
        wanted = sum(hit.matches for hit in found)
        if chars > MAX_TEXT_CHARS:
            break
        relative = name.removeprefix(b"./")
        try:
            with workspace.open_file(str(place.directory / os.fsdecode(relative))) as fd:
                read = [(hit, line) for hit in found if (line := _line(fd, hit)) is not None]
        except ToolFailed:
            read = []
        # A name that is not UTF-8 must not put half a character into the conversation.
        named = path if place.name else _join_path(path, text_lines.decode(relative))
        printed = list(_format_hits(read, named, context_lines))
        if lines and printed and context_lines:
            lines.append("--")
        lines += printed
        chars += sum(map(len, printed))
        here = sum(hit.matches for hit, _ in read)
        matches, unread = matches + here, unread + wanted - here
    return Shown("\n".join(lines), matches, unread)


def _format_hits(read: Sequence[tuple[Hit, str]], name: str, context_lines: int) -> Iterator[str]:
    before: int | None = None
    for hit, line in read:
        if context_lines and before is not None and hit.line > before + 1:
            yield "--"
        before = hit.line
        sign = ":" if hit.matches else "-"
        yield f"{name}{sign}{hit.line}{sign}{line}"


def _line(fd: int, hit: Hit) -> str | None:
    """Return the line, or what fits around its match; None if no line begins there any more."""
    if hit.offset and _bytes(fd, hit.offset - 1, 1) != b"\n":
        return None
    start = _bytes(fd, hit.offset, LINE_BYTES + 1)
    whole, newline, _ = start.partition(b"\n")
    if newline or len(start) <= LINE_BYTES:
        return text_lines.decode(whole)
    return _around(fd, hit)


def _around(fd: int, hit: Hit) -> str:
    skipped = max(0, hit.column - 1 - LINE_BYTES // 2)
    raw = _bytes(fd, hit.offset + skipped, LINE_BYTES + 4)
    piece, newline, _ = raw.partition(b"\n")
    whole_characters = next((at for at in range(min(4, len(piece))) if piece[at] & 0xC0 != 0x80), 0)
    piece = piece[whole_characters:] if skipped else piece
    clipped = text_lines.clip_utf8(piece, LINE_BYTES)
    ends = bool(newline) and clipped == piece
    return f"{'…' if skipped else ''}{text_lines.decode(clipped)}{'' if ends else '…'}"


def _bytes(fd: int, offset: int, size: int) -> bytes:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, size)


def _join_path(path: str, relative: str) -> str:
    return relative if PurePath(path) == PurePath() else f"{path.rstrip('/')}/{relative}"


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
        "context_focus_question": request.SCHEMA,
    },
    "additionalProperties": False,
}

Pattern = Annotated[str, Field(min_length=1, max_length=10_000, pattern=r"^[^\x00]*$")]


class Grep(request.FocusArguments):
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


def tool(
    workspace: Workspace, pruning: Pruning, env: Mapping[str, str], rg: str | None, threads: Executor
) -> AgentTool[Grep]:
    child_env = commands.child_env(env)

    @asynccontextmanager
    async def grep(who: Caller, asked: Grep) -> AsyncIterator[ToolOutput]:
        yield await commands.in_thread(partial(_grep, asked, seen_by_client(workspace), child_env, rg), threads)

    return AgentTool("grep", "Search files", DESCRIPTION, SCHEMA, Grep, grep, pruning)


def _grep(
    asked: Grep, workspace: Workspace, env: Mapping[str, str], rg: str | None, stop: threading.Event
) -> ToolOutput:
    real = workspace.real(asked.path)
    place = _place(asked.path, real, workspace)
    found = search(asked.query(), place, env, TIMEOUT_S, stop, rg)
    if not found.hits and found.outcome.errors.strip() and found.outcome.exit_code != 1:
        raise ToolFailed("search_failed", found.outcome.errors.strip())
    shown = show_hits(found.hits, workspace, place, asked.path, asked.context_lines)
    remarks = _remarks(found, shown, f"{real}.{workspace.hint}" if workspace.hint else "")
    return request.of_text(
        shown.text, Origin("grep"), problem=_problem(found), remarks=remarks, meta={"matches": found.total}
    )


def _place(path: str, real: Path, workspace: Workspace) -> Place:
    try:
        mode = real.lstat().st_mode
    except OSError as e:
        raise workspace.refusal_of(path, e) from e
    if stat.S_ISDIR(mode):
        return Place(real)
    if stat.S_ISREG(mode):
        return Place(real.parent, real.name)
    raise ToolFailed("not_a_file", f"{path} is neither a file nor a directory")


def _remarks(found: Found, shown: Shown, where: str) -> tuple[str, ...]:
    remarks = [] if shown.text else [f"no match in {where}" if where else "no match"]
    if found.total is None or shown.matches + shown.unread < found.total:
        total = "many" if found.total is None else found.total
        remarks.append(f"{shown.matches} of {total} matches shown: narrow the pattern, path or glob")
    if shown.unread:
        remarks.append(f"{shown.unread} matches in files that may not be read were left out")
    return tuple(remarks)


def _problem(found: Found) -> ToolProblem | None:
    outcome = found.outcome
    if outcome.ending == "timeout":
        remark = f"timed out after {TIMEOUT_S:.0f} s: these are the hits so far"
        return ToolProblem("timeout", remark, round(TIMEOUT_S * 1000))
    # 1 is "no match"; xargs returns 123 for it. Standard error distinguishes both from errors.
    if outcome.ending == "exited" and outcome.exit_code not in (0, 1) and outcome.errors.strip():
        return ToolProblem("search_failed", f"the search was not complete: {_one_line(outcome.errors)}")
    return None


def _one_line(errors: str) -> str:
    lines = errors.strip().split("\n")
    more = f" | and {len(lines) - 5} more" if len(lines) > 5 else ""
    return " | ".join(line.strip()[:300] for line in lines[:5]) + more
