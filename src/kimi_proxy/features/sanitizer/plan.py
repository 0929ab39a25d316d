"""The plan of the sanitizer: a conversation's long tool results, its goal, and the agent's activity at each result."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from typing import Literal, NamedTuple

from kimi_proxy.core import json
from kimi_proxy.core.chat import Content, Part, Request
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.errors import ParseError, Reason
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.lines import ROW_NUMBER
from kimi_proxy.core.markers import has_id
from kimi_proxy.core.prune import CallContext, Origin


@dataclass(frozen=True, slots=True)
class LongOutput:
    """`text` with its head and tail covers `start` to `end` in the text of the part at `spot`."""

    spot: Place
    start: int
    end: int
    text: str
    origin: Origin
    call_id: str
    is_unread: bool  # the model has not answered since
    whole_because: Reason | Literal[""] = ""  # a reason that is known before the text is looked at
    mark: bytes = b""  # of the place in its conversation, and of the text
    key: bytes = b""  # the same with the name of the conversation
    digest: bytes = b""  # of the text alone
    stays: bool = True  # the provider has not compacted it away, and may not clear it
    head: str = ""  # of the agent, about the result; never a part of it
    tail: str = ""  # the same after it

    @property
    def is_report(self) -> bool:
        """Return whether the client reports it unasked, as aider does after each of its edits."""
        return not self.call_id and self.origin.tool == REPORT


REPORT = "run"
HUGE_CHARS = 32_000  # of a report that is repeated: above this it is cut again
MAX_ARGUMENT_BYTES = 16 * 1024  # a longer one is a file to be written

# Tools that show files.
READERS = frozenset({"read", "view", "read_file", "readfile", "open", "notebookread"})
_PATHS = ("file_path", "path", "filePath", "filename", "file", "target_file", "absolute_path", "notebook_path", "uri")
_COMMANDS = ("command", "commands", "cmd", "script", "input", "code")
# `recover_text` itself, or under the name that a client gives to the tools of a server: mcp__pruner__recover_text.
_RECOVERING = re.compile(r"recover_(?:text|range)\b|recover_(?:text|range)$")
_RECOVERING_CALL = re.compile(r"\brecover_(?:text|range)\(|__recover_(?:text|range)\(")
_REMINDER = "system-reminder"
# How agents introduce the output of a command, and the text they add after it: Codex, Qwen Code, Gemini CLI,
# mini-swe-agent, Copilot CLI.
_HEAD = re.compile(
    r"(?:(?:Chunk ID|Wall time|Process exited with code|Process running with session ID|Original token count"
    r"|Total output lines|Exit code|Command|Directory)\b[^\n]{0,2000}\n{1,2}){1,8}"
    r"(?:Output:(?:\n| ))?(?:Total output lines: \d+\n\n)?|<returncode>-?\d+</returncode>\n<output>\n"
)
_TAIL = re.compile(
    r"\n(?:Error: [^\n]{0,200}\n)?Exit Code: [^\n]{0,40}"
    r"(?:\n(?:Signal|Process Group PGID|Background PIDs): [^\n]{0,200}){0,3}\s*\Z"
    r"|\n?</output>\s*\Z|\n?<(?:exited|shellId: \S{1,40} completed|command with shellId) [^<>\n]{0,200}>\s*\Z"
)
MAX_TAIL_CHARS = 1000
# Clients without tool calls write results as text: [execute_command for 'npm test'] Result:
_WRITTEN_RESULT = re.compile(r"\[(\w+) for '([^\n]{0,300})'\] Result:\s*\Z")
_WRITTEN_RECOVERY = re.compile(r"<tool_name>\s*\w*recover_(?:text|range)\s*</tool_name>")


def plan(request: Request, threshold_tokens: int, conversation: bytes = b"") -> tuple[LongOutput, ...]:
    """Return every output that may have more tokens than that, in the order in which the model reads them.

    Their keys begin with the name of the conversation: call ids are often unique only within one.
    """
    messages = request.messages
    if not any(message.content.derive(_longest) > threshold_tokens for message in messages):
        return ()
    last_answer = next((at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant"), -1)
    stays_from = len(messages) if request.is_cleared else request.read_from
    calls: dict[str, _CallOrigin] = {}  # the last call of each id: some clients reuse call ids in every turn
    seen = _SeenTexts()
    found: list[LongOutput] = []
    for at, message in enumerate(messages):
        calls.update(message.content.derive(_tool_calls))
        if message.content.derive(_longest) > threshold_tokens:
            for output in _outputs(request, at, calls, threshold_tokens):
                found.append(seen.name(output, conversation, at=at, is_unread=at > last_answer, stays=at >= stays_from))
    return tuple(found)


def is_recovery(tool: str, arguments: str = "") -> bool:
    """Return whether a call gives originals back: by a tool of ours, or by a script or command that asks for one."""
    return _RECOVERING.search(tool) is not None or _RECOVERING_CALL.search(arguments) is not None or has_id(arguments)


def is_recovery_call(part: Part) -> bool:
    """Return whether this tool call gives originals back."""
    return is_recovery(part.name, _arguments(part))


def calls_recall_tool(part: Part) -> bool:
    """Return whether this tool call is one of a tool of ours, by its name or from a script."""
    return is_recovery(part.name) or _RECOVERING_CALL.search(_arguments(part)) is not None


def _arguments(part: Part) -> str:
    return part.text if part.end - part.start <= MAX_ARGUMENT_BYTES else ""


def _longest(content: Content) -> int:
    """Return the bytes of the longest output that a message may hold; 0 if it holds none."""
    is_user = content.role == "user"
    return max((_bytes_of_output(part) for part in content.parts if is_user or part.kind == "tool_result"), default=0)


def _bytes_of_output(part: Part) -> int:
    """A token has one byte at least, and JSON needs as many for it or more."""
    return part.end - part.start - 2 if part.kind in ("text", "tool_result") and part.is_string else 0


class _CallOrigin(NamedTuple):
    origin: Origin
    is_recovery: bool = False


_NO_CALL = _CallOrigin(Origin())


def _tool_calls(content: Content) -> Sequence[tuple[str, _CallOrigin]]:
    """Return the ids of a message's calls, and what each was called with."""
    return [
        (part.call_id, _CallOrigin(origin_of(part.name, _arguments(part)), is_recovery_call(part)))
        for part in content.parts
        if part.kind == "tool_call" and part.call_id
    ]


def origin_of(tool: str, arguments: str) -> Origin:
    """Return the subject of a call with these arguments, JSON or plain text."""
    if len(arguments) > MAX_ARGUMENT_BYTES:
        return Origin(tool)
    try:
        given = json.decode(arguments.encode("utf-8", "replace"))
    except ParseError:
        return Origin(tool, command=arguments)
    if not isinstance(given, Mapping):
        return Origin(tool, command=arguments)
    return Origin(tool, _first_text(given, _PATHS), _first_text(given, _COMMANDS))


def _first_text(given: Mapping[str, JsonValue], names: Iterable[str]) -> str:
    for name in names:
        value = given.get(name)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            value = " ".join(map(str, value))
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
    return ""


@dataclass(frozen=True, slots=True)
class _OutputText:
    """An output at `start` to `end` of a text: `text` with its head and tail. The same in every request."""

    start: int
    end: int
    text: str
    head: str
    tail: str
    hashed: bytes  # with its head and tail
    digest: bytes  # without: some agents print a duration before each result


@dataclass(frozen=True, slots=True)
class _FoundOutput:
    """An output in a message, before it is known what came before it."""

    part: int
    said: _OutputText
    origin: Origin
    call_id: str = ""
    is_recovered: bool = False


def _outputs(
    request: Request, at: int, calls: Mapping[str, _CallOrigin], threshold_tokens: int
) -> Iterator[_FoundOutput]:
    """Yield the outputs in a message: tool results, and texts that a user pasted or a client wrote."""
    message = request.messages[at]
    for index, part in enumerate(message.parts):
        if _bytes_of_output(part) <= threshold_tokens:
            continue
        if part.kind == "tool_result":
            call = calls.get(part.call_id, _NO_CALL)
            origin = replace(call.origin, failed=True) if part.failed else call.origin
            yield _FoundOutput(index, part.derive(_result_text), origin, part.call_id, call.is_recovery)
        elif message.role == "user":
            is_recovered = _follows_recovery(request, at)
            for said, origin in message.content.derive(_in_user_text, index, threshold_tokens):
                yield _FoundOutput(index, said, origin, is_recovered=is_recovered)


class _SeenTexts:
    """Names each output by its place: the id of its call, or the number of equal texts before it.

    The text alone is not enough: cut text may appear again because the model asked for all of it.
    """

    def __init__(self) -> None:
        self._places: Counter[tuple[str, bytes]] = Counter()
        self._texts: set[bytes] = set()

    def name(self, output: _FoundOutput, conversation: bytes, *, at: int, is_unread: bool, stays: bool) -> LongOutput:
        """Return the output with its key in a conversation of this name."""
        said = output.said
        place = (output.call_id, said.hashed)
        nth = self._places[place].to_bytes(4, "big")
        mark = nth + said.hashed + output.call_id.encode("utf-8", "surrogatepass")
        is_repeated = said.digest in self._texts
        self._places[place] += 1
        self._texts.add(said.digest)
        because: Reason | Literal[""] = "recovered" if output.is_recovered else ""
        is_huge_report = not output.call_id and output.origin.tool == REPORT and len(said.text) > HUGE_CHARS
        # A model that asks for the same text again missed something in it.
        if not because and is_repeated and not is_huge_report:
            because = "asked_again"
        return LongOutput(
            spot=(at, output.part),
            start=said.start,
            end=said.end,
            text=said.text,
            origin=output.origin,
            call_id=output.call_id,
            is_unread=is_unread,
            whole_because=because,
            mark=mark,
            key=key_in(conversation, mark),
            digest=said.digest,
            stays=stays,
            head=said.head,
            tail=said.tail,
        )


def result_of(
    origin: Origin,
    text: str,
    call_id: str = "",
    spot: Place = (0, 0),
    is_unread: bool = True,
    is_recovered: bool = False,
) -> LongOutput:
    """Return a tool's result without the client's text before and after it."""
    said = _result_of(text)
    return LongOutput(
        spot=spot,
        start=said.start,
        end=said.end,
        text=said.text,
        origin=origin,
        call_id=call_id,
        is_unread=is_unread,
        whole_because="recovered" if is_recovered else "",
        head=said.head,
        tail=said.tail,
    )


def _result_text(part: Part) -> _OutputText:
    return _result_of(part.text)


def _result_of(text: str) -> _OutputText:
    end = before_reminders(text)
    head = _HEAD.match(text, 0, end)
    tail = _TAIL.search(text, max(0, end - MAX_TAIL_CHARS), end)
    first = head.end() if head else 0
    last = tail.start() if tail else end
    if first > last:
        first = 0
        last = end
    hashed = _sha256(text[:end])
    if not first and last == end:
        return _OutputText(0, end, text[:end], "", "", hashed, hashed)
    inner = text[first:last]
    return _OutputText(0, end, inner, text[:first], text[last:end], hashed, _sha256(inner))


def before_reminders(text: str) -> int:
    """Return the end of the tool's own output: some clients append text for the model."""
    end = len(text)
    while text[:end].rstrip().endswith(f"</{_REMINDER}>") and (start := text.rfind(f"<{_REMINDER}>", 0, end)) >= 0:
        end = start
    return end


def _in_user_text(content: Content, index: int, threshold_tokens: int) -> Sequence[tuple[_OutputText, Origin]]:
    text = content.parts[index].text
    before = content.parts[index - 1] if index else None
    result = _WRITTEN_RESULT.match(before.text[-400:]) if before is not None and before.kind == "text" else None
    if result is not None:
        tool, argument = result.groups()
        is_command = "command" in tool
        origin = Origin(tool, command=argument) if is_command else Origin(tool, path=argument)
        return [(_section_of(text, 0, len(text)), origin)]
    # A character has four bytes at most, and a token one at least.
    return [
        (_section_of(text, section.start, section.end), Origin(section.tool, section.name, section.command))
        for section in sections(text, threshold_tokens // 4)
    ]


def _section_of(text: str, start: int, end: int) -> _OutputText:
    section = text[start:end]
    hashed = _sha256(section)
    return _OutputText(start, end, section, "", "", hashed, hashed)


def _follows_recovery(request: Request, at: int) -> bool:
    before = request.messages[at - 1] if at else None
    if before is None or before.role != "assistant":
        return False
    return any(_WRITTEN_RECOVERY.search(part.text) for part in before.parts if part.kind == "text")


def key_in(conversation: bytes, mark: bytes) -> bytes:
    """Return the key of an output in a conversation of that name."""
    return sha256(conversation + mark).digest()


def _sha256(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


MAX_QUESTION_CHARS = 2000

# Elements in which clients wrap outputs. Tags such as <system-reminder> contain instructions, and stay.
_ELEMENT = re.compile(
    r"<((?:file|tool|console|command|terminal|bash|local-command)[-_](?:contents?|output|result|stdout|stderr)"
    r"|file|codebase|tool|console|output|stdout|stderr)(\s[^<>]{0,300})?>"
)
_NAMED = re.compile(r"(?:path|name|src|source|file)\s*=\s*[\"']?([^\"'\s>]{1,300})")
_HEADER = re.compile(r"@(file|codebase|tool|console|output)\b:?[ \t]*(\S*)[^\n]*(?:\n|\Z)")
# In a sentence above a block: "What is wrong in @file src/app.py?"
_MENTION = re.compile(r"(?<![\w@])@(file|codebase|tool|console|output)\b:?[ \t]{0,20}(\S{0,300})")
MAX_SENTENCE_CHARS = 1000
_FENCE = re.compile(r"(`{3,}+|~{3,}+)([^\n`]{0,400})\n")
# An editor's context: ```src/app.py (10-80)
_FILE_NAMED = re.compile(
    r"[ \t]*+(?:\w++[ \t]++)?([\w@~./\\ -]{1,300}(?<=[\w-])\.\w{1,10})(?:[ \t]*\(\d+-\d+\))?[ \t]*"
)


_RAN = re.compile(r"I ran this command:\n\n(.{1,2000}?)\n\nAnd got this output:\n\n", re.DOTALL)
_OBSERVATION = "Observation:\n"


@dataclass(frozen=True, slots=True)
class OutputSection:
    """`text[start:end]` is the output of `tool`, about the file of that `name` or of that `command` if it has one."""

    start: int
    end: int
    tool: str
    name: str
    command: str = ""


def sections(text: str, min_chars: int) -> list[OutputSection]:
    """Return the sections of at least `min_chars`, in their order; none overlaps another."""
    found = sorted(
        (*_reported_sections(text), *_elements(text), *_headed_sections(text), *_fenced_sections(text)),
        key=lambda s: (s.start, -s.end),
    )
    apart: list[OutputSection] = []
    for section in found:
        if section.end - section.start >= min_chars and (not apart or section.start >= apart[-1].end):
            apart.append(section)
    return apart


def _reported_sections(text: str) -> Iterator[OutputSection]:
    """Yield what agents without tool calls say to the model as the user, all of it: aider and smolagents do."""
    if ran := _RAN.match(text):
        yield OutputSection(ran.end(), len(text), REPORT, "", ran[1])
    elif text.startswith(_OBSERVATION):
        yield OutputSection(len(_OBSERVATION), len(text), "observation", "")


def _elements(text: str) -> Iterator[OutputSection]:
    at = 0 if "<" in text else len(text)
    endless: set[str] = set()  # nothing closes them any more: looking again and again would take its time
    while opening := _ELEMENT.search(text, at):
        at = opening.end()
        end = -1 if opening[1] in endless else text.find(f"</{opening[1]}>", at)
        if end < 0:
            endless.add(opening[1])
        else:
            named = _NAMED.search(opening[2] or "")
            yield OutputSection(at, end, opening[1], named[1] if named else "")
            at = end


def _headed_sections(text: str) -> Iterator[OutputSection]:
    headers = [header for at in _lines_with(text, "@") if (header := _HEADER.match(text, at))]
    for header, following in zip_longest(headers, headers[1:]):
        start = header.end()
        end = following.start() if following else len(text)
        fence = _FENCE.match(text, start)
        if fence is not None:
            start = fence.end()
            end = _end_of_fence(text, fence)
        elif following is None:
            end = _before_question(text, start)
        yield OutputSection(start, end, header[1], header[2])


def _fenced_sections(text: str) -> Iterator[OutputSection]:
    after = 0
    for at in sorted((*_lines_with(text, "```"), *_lines_with(text, "~~~"))):
        fence = _FENCE.match(text, at) if at >= after else None
        if fence is None:
            continue
        end = _end_of_fence(text, fence)
        named = _FILE_NAMED.fullmatch(fence[2])
        if named is not None:
            yield OutputSection(fence.end(), end, "file", named[1].strip())
        elif mention := _mention_above(text, at):
            yield OutputSection(fence.end(), end, mention[1], mention[2].rstrip(".,;:!?)\"'`"))
        after = end + len(fence[1]) + 1


def _mention_above(text: str, at: int) -> re.Match[str] | None:
    """Return the last mention of a file or an output in the line above a block, of which a blank line may part it."""
    above = text[max(0, at - MAX_SENTENCE_CHARS) : at].rstrip("\n")
    line = above[above.rfind("\n") + 1 :]
    return next(reversed(list(_MENTION.finditer(line))), None) if "@" in line else None


def _lines_with(text: str, beginning: str) -> Iterator[int]:
    """Yield where the lines begin that begin so; a plain search, since texts are long and such lines are few."""
    if beginning[0] not in text:  # one character is found ten times as fast as two
        return
    if text.startswith(beginning):
        yield 0
    at = text.find(f"\n{beginning}")
    while at >= 0:
        yield at + 1
        at = text.find(f"\n{beginning}", at + 1)


def _end_of_fence(text: str, fence: re.Match[str]) -> int:
    """Return where the line begins that closes a block, or the end of the text."""
    end = text.find(f"\n{fence[1]}", fence.end() - 1)
    return len(text) if end < 0 else end + 1


def _before_question(text: str, start: int) -> int:
    """Return the end of the last section: people ask below the pasted text, so the last paragraph is theirs."""
    end = text.rstrip().rfind("\n\n", start)
    return end + 1 if end >= 0 and len(text) - end <= MAX_QUESTION_CHARS else len(text)


MAX_CHARS = 280

# What clients put among the user's words.
_ASIDE = re.compile(
    r"<(system-reminder|environment_details|environment_context|user_instructions|INSTRUCTIONS|command-\w+)\b[^>]{0,200}>"
)
_MARKER = re.compile(
    r"^\W{0,8}(?:plan|to-?do|mission|objectives?|objectifs?)(?:[ \t]+(?:list|of|du|de)\b[^\n:]{0,40})?"
    r"[*_`\"' \t]*(?:[:>][*_ \t]*|$)",
    re.I | re.M,
)


def goal(request: Request) -> str:
    """Return the lines after a marker such as `Objective:` in the user's newest words, else the first and last ones."""
    return goal_of(list(_user_texts(request)))


def goal_of(written: Sequence[str]) -> str:
    """Return the goal of a conversation in which the user wrote this."""
    if not written:
        return ""
    marker = _MARKER.search(written[-1])
    return (_short(written[-1][marker.end() :]) if marker else "") or _both(_short(written[0]), _short(written[-1]))


def prompt_goal(prompt: str) -> str:
    """Return the goal that one prompt of the user states."""
    words = own_words(prompt)
    marker = _MARKER.search(words)
    return (_short(words[marker.end() :]) if marker else "") or _short(words)


def _user_texts(request: Request) -> Iterator[str]:
    """Yield the user's own text in each message, without that of tools and clients."""
    for message in request.messages:
        if message.role == "user":
            texts = (own_words(part.text) for part in message.parts if part.kind == "text")
            if words := " \n".join(text for text in texts if text):
                yield words


def own_words(text: str) -> str:
    """Return the user's own words in a text, without those of tools and clients."""
    found = sections(text, MAX_CHARS)
    starts = (0, *(section.end for section in found))
    ends = (*(section.start for section in found), len(text))
    text = "".join(text[start:end] for start, end in zip(starts, ends, strict=True))
    own: list[str] = []
    at = 0
    endless: set[str] = set()  # nothing closes them any more
    while aside := _ASIDE.search(text, at):
        own.append(text[at : aside.start()])
        end = -1 if aside[1] in endless else text.find(f"</{aside[1]}>", aside.end())
        if end < 0:
            endless.add(aside[1])
        at = aside.end() if end < 0 else end + len(aside[1]) + 3
    return "".join((*own, text[at:])).strip()


def _both(first: str, newest: str) -> str:
    if first == newest:
        return newest
    room = MAX_CHARS - 1
    last = newest[: max(room // 2, room - len(first))]
    return f"{first[: room - len(last)]}\n{last}"


def _short(text: str) -> str:
    return " ".join(text[: 4 * MAX_CHARS].split())[:MAX_CHARS].strip()


USER_CHARS = 600  # of the first words, and as many of the newest
SAID_CHARS = 1000
ARGUMENT_CHARS = 1000
RECENT_CHARS = 4000
SEEN_CHARS = 12  # of a line: a shorter one is seen everywhere

_RANGE = re.compile(r'"(?:offset|limit|view_range|start_line|end_line|line_start|range)"\s*:\s*[\[\d]')
_EDITS = re.compile(r"edit|write|replace|patch|create|insert", re.I)


def _bare(line: str) -> str:
    begun = line.lstrip()
    number = ROW_NUMBER.match(line) if begun[:1].isdigit() else None
    return line[number.end() :].strip() if number else begun.rstrip()


def _encodable(text: str) -> str:
    """Return a text that can be sent to a worker: without halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


class MadeCall(NamedTuple):
    """A call of a tool, as far as it tells what the agent is at."""

    id: str
    tool: str
    path: str
    arguments: str  # the beginning of them
    is_partial: bool  # it asks for a range
    is_edit: bool

    @classmethod
    def of(cls, id: str, name: str, arguments: str) -> "MadeCall":
        path = origin_of(name, arguments).path
        tool = _encodable(name)
        beginning = _encodable(arguments[:ARGUMENT_CHARS])
        is_partial = _RANGE.search(beginning) is not None
        return cls(id, tool, path, beginning, is_partial, is_edit=_EDITS.search(tool) is not None)


class _Moment(NamedTuple):
    """What the agent was at when it made a call."""

    call: MadeCall
    user: str
    said: str
    recent: str
    siblings: int
    was_read: bool
    was_edited: bool


class CallHistory:
    """Reads a conversation in order, and returns the agent's activity at each result."""

    def __init__(self, edits_by_quoting: bool, wanted: Collection[str] | None = None) -> None:
        """`wanted` are the ids of the calls whose results are asked about; None: of all calls."""
        self._edits_by_quoting = edits_by_quoting
        self._wanted = wanted
        self._first = self._newest = ""
        self._recent = ""
        self._results = 0
        self._read: set[str] = set()
        self._edited: set[str] = set()
        self._said = ""
        self._answer: list[str] = []
        self._calls: dict[str, _Moment] = {}
        self._seen: set[int] = set()

    def user(self, words: str) -> None:
        """Add the user's words, without the client's text."""
        self._newest = _encodable(words[:USER_CHARS])
        self._first = self._first or self._newest
        self._end_answer()

    def answer(self, said: str, calls: Iterable[MadeCall]) -> None:
        """Add the agent's text and its calls; an answer may arrive in pieces."""
        made = list(calls)
        said = self._said = _encodable(said[-SAID_CHARS:]) or self._said
        user = self._newest if self._first == self._newest else f"{self._first}\n{self._newest}"
        for call in made:
            self._calls[call.id] = _Moment(
                call=call,
                user=user,
                said=said,
                recent=self._recent,
                siblings=len(made) - 1,
                was_read=call.path in self._read,
                was_edited=call.path in self._edited,
            )
        for call in made:
            if call.path:
                (self._edited if call.is_edit else self._read).add(call.path)
        self._answer += [said, *(call.arguments for call in made)] if made else []

    def _end_answer(self) -> None:
        """End an answer: its text and calls are the previous activity from now on."""
        self._recent = "\n".join((self._recent, *self._answer))[-RECENT_CHARS:] if self._answer else self._recent
        self._said = ""
        self._answer = []

    def result(self, call_id: str, result: str | tuple[int, ...], failed: bool = False) -> CallContext | None:
        """Return the agent's activity at the time of this result, given as text or by the hashes of its lines.

        None if its call is unknown.
        """
        moment = self._calls.get(call_id)
        self._results += 1
        self._end_answer()
        hashes = result if isinstance(result, tuple) else line_hashes(result)
        is_wanted = moment is not None and (self._wanted is None or call_id in self._wanted)
        seen = tuple(row for row, hashed in enumerate(hashes) if hashed in self._seen) if is_wanted else ()
        self._seen.update(hashes)
        self._seen.discard(0)
        if moment is None or not is_wanted:
            return None
        return CallContext(
            tool=moment.call.tool,
            path=moment.call.path,
            user=moment.user,
            said=moment.said,
            arguments=moment.call.arguments,
            recent=moment.recent,
            siblings=moment.siblings,
            was_read=moment.was_read,
            was_edited=moment.was_edited,
            is_partial=moment.call.is_partial,
            edits_by_quoting=self._edits_by_quoting,
            results=self._results - 1,
            failed=failed,
            seen_rows=seen,
        )


def line_hashes(text: str) -> tuple[int, ...]:
    """Return a hash of each line; 0 for one that is seen everywhere."""
    return tuple(hash(line) if len(line) >= SEEN_CHARS else 0 for line in map(_bare, text.split("\n")))


def _lines_of(part: Part) -> tuple[int, ...]:
    return line_hashes(part.text)


def contexts(
    request: Request, edits_by_quoting: bool, shown: Mapping[Place, str], wanted: Collection[str] | None = None
) -> dict[Place, CallContext]:
    """Return the agent's activity at each tool result of a conversation, or at those of the `wanted` calls.

    `shown` are the results that the model sees in another form than the client sent: it has not seen their cut parts.
    """
    history = CallHistory(edits_by_quoting, wanted)
    found: dict[Place, CallContext] = {}
    for at, message in enumerate(request.messages):
        if message.role == "assistant":
            history.answer(*message.content.derive(_answer))
            continue
        for index, part in enumerate(message.parts):
            if part.kind == "tool_result":
                lines = shown[at, index] if (at, index) in shown else part.derive(_lines_of)
                context = history.result(part.call_id, lines, part.failed)
                if context is not None:
                    found[at, index] = context
            elif message.role == "user" and part.kind == "text" and (words := own_words(part.text)):
                history.user(words)
    return found


def _answer(content: Content) -> tuple[str, Sequence[MadeCall]]:
    """Return the text of an answer, and its calls."""
    said = "\n".join(part.text for part in content.parts if part.kind == "text")
    calls = (part for part in content.parts if part.kind == "tool_call" and part.call_id)
    return said, [MadeCall.of(part.call_id, part.name, _arguments(part)) for part in calls]
