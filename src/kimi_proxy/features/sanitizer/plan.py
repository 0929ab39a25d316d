"""The plan of the sanitizer: a conversation's long tool results, its goal, and the agent's activity at each result."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from typing import Literal, NamedTuple

from kimi_proxy.core import json
from kimi_proxy.core.chat import Message, Part, Request
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.errors import ParseError, Reason
from kimi_proxy.core.json import JsonValue
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
    parts = (part for message in request.messages if message.role in ("user", "tool") for part in message.parts)
    if not any(_may_be_long(part, threshold_tokens) for part in parts):
        return ()
    answered = (at for at, message in enumerate(request.messages) if message.role == "assistant")
    last_answer = max(answered, default=-1)
    calls: dict[str, _CallOrigin] = {}  # the last call of each id: some clients reuse call ids in every turn
    found: list[LongOutput] = []
    for at, message in enumerate(request.messages):
        calls.update(_tool_calls(message))
        here = _outputs(request, at, calls, threshold_tokens, at > last_answer)
        is_lost = request.is_cleared or at < request.read_from
        found += (replace(output, stays=False) for output in here) if is_lost else here
    return tuple(_with_keys(conversation, found)) if found else ()


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


def _may_be_long(part: Part, threshold_tokens: int) -> bool:
    """A token has one byte at least, and JSON needs as many for it or more."""
    return part.end - part.start - 2 > threshold_tokens and part.kind in ("text", "tool_result") and part.is_string


class _CallOrigin(NamedTuple):
    origin: Origin
    is_recovery: bool = False


def _tool_calls(message: Message) -> Iterator[tuple[str, _CallOrigin]]:
    """Yield the ids of a message's calls, and what each was called with."""
    for part in message.parts:
        if part.kind == "tool_call" and part.call_id:
            yield part.call_id, _CallOrigin(origin_of(part.name, _arguments(part)), is_recovery_call(part))


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


def _outputs(
    request: Request, at: int, calls: Mapping[str, _CallOrigin], threshold_tokens: int, is_unread: bool
) -> Iterator[LongOutput]:
    """Yield the outputs in a message: tool results, and texts that a user pasted or a client wrote."""
    message = request.messages[at]
    for index, part in enumerate(message.parts):
        if not _may_be_long(part, threshold_tokens):
            continue
        spot = (at, index)
        if part.kind == "tool_result":
            call = calls.get(part.call_id, _CallOrigin(Origin()))
            origin = replace(call.origin, failed=part.failed)
            yield result_of(origin, part.text, part.call_id, spot, is_unread, call.is_recovery)
        elif message.role == "user":
            recovered: Reason | Literal[""] = "recovered" if _follows_recovery(request, at) else ""
            for start, end, origin in _in_user_text(message, index, threshold_tokens):
                yield LongOutput(spot, start, end, part.text[start:end], origin, "", is_unread, recovered)


def result_of(
    origin: Origin,
    text: str,
    call_id: str = "",
    spot: Place = (0, 0),
    is_unread: bool = True,
    is_recovered: bool = False,
) -> LongOutput:
    """Return a tool's result without the client's text before and after it."""
    end = before_reminders(text)
    why: Reason | Literal[""] = "recovered" if is_recovered else ""
    head = _HEAD.match(text, 0, end)
    tail = _TAIL.search(text, max(0, end - MAX_TAIL_CHARS), end)
    first, last = head.end() if head else 0, tail.start() if tail else end
    if first > last:
        first, last = 0, end
    output = LongOutput(spot, 0, end, text[first:last], origin, call_id, is_unread, why)
    return replace(output, head=text[:first], tail=text[last:end]) if head or tail else output


def before_reminders(text: str) -> int:
    """Return the end of the tool's own output: some clients append text for the model."""
    end = len(text)
    while text[:end].rstrip().endswith(f"</{_REMINDER}>") and (start := text.rfind(f"<{_REMINDER}>", 0, end)) >= 0:
        end = start
    return end


def _in_user_text(message: Message, index: int, threshold_tokens: int) -> Iterator[tuple[int, int, Origin]]:
    text = message.parts[index].text
    before = message.parts[index - 1] if index else None
    result = _WRITTEN_RESULT.match(before.text[-400:]) if before is not None and before.kind == "text" else None
    if result is not None:
        tool, argument = result.groups()
        is_command = "command" in tool
        yield 0, len(text), Origin(tool, command=argument) if is_command else Origin(tool, path=argument)
        return
    # A character has four bytes at most, and a token one at least.
    for section in sections(text, threshold_tokens // 4):
        yield section.start, section.end, Origin(section.tool, section.name, section.command)


def _follows_recovery(request: Request, at: int) -> bool:
    before = request.messages[at - 1] if at else None
    if before is None or before.role != "assistant":
        return False
    return any(_WRITTEN_RECOVERY.search(part.text) for part in before.parts if part.kind == "text")


def _with_keys(conversation: bytes, found: Sequence[LongOutput]) -> Iterator[LongOutput]:
    """Yield each output with the key of its place: the id of its call, or the number of equal texts before it.

    The text alone is not enough: cut text may appear again because the model asked for all of it.
    """
    places: Counter[tuple[str, bytes]] = Counter()
    texts: set[bytes] = set()
    for output in found:
        whole = f"{output.head}{output.text}{output.tail}"
        hashed = _sha256(whole)
        # Some agents print a duration before each result: the same text has another head then.
        digest = _sha256(output.text) if output.head or output.tail else hashed
        place = (output.call_id, hashed)
        nth = places[place].to_bytes(4, "big")
        mark = nth + hashed + output.call_id.encode("utf-8", "surrogatepass")
        because = output.whole_because
        # A model that asks for the same text again missed something in it.
        if not because and digest in texts and not (output.is_report and len(output.text) > HUGE_CHARS):
            because = "asked_again"
        places[place] += 1
        texts.add(digest)
        key = key_in(conversation, mark)
        yield replace(output, mark=mark, key=key, digest=digest, whole_because=because)


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
        start, end = header.end(), following.start() if following else len(text)
        fence = _FENCE.match(text, start)
        if fence is not None:
            start, end = fence.end(), _end_of_fence(text, fence)
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
    starts, ends = (0, *(section.end for section in found)), (*(section.start for section in found), len(text))
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


# What readers of files put before a line.
_NUMBER = re.compile(r"\s{0,12}\d{1,7}(?:→|\t|\| ?|: )")


def _bare(line: str) -> str:
    begun = line.lstrip()
    number = _NUMBER.match(line) if begun[:1].isdigit() else None
    return line[number.end() :].strip() if number else begun.rstrip()


def _encodable(text: str) -> str:
    """Return a text that can be sent to a worker: without halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


class MadeCall(NamedTuple):
    id: str
    name: str
    arguments: str


class CallHistory:
    """Reads a conversation in order, and returns the agent's activity at each result."""

    def __init__(self, edits_by_quoting: bool) -> None:
        self._edits_by_quoting = edits_by_quoting
        self._first = self._newest = ""
        self._recent = ""
        self._results = 0
        self._read: set[str] = set()
        self._edited: set[str] = set()
        self._said = ""
        self._answer: list[str] = []
        self._calls: dict[str, CallContext] = {}
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
            path = origin_of(call.name, call.arguments).path
            arguments = _encodable(call.arguments[:ARGUMENT_CHARS])
            self._calls[call.id] = CallContext(
                tool=_encodable(call.name),
                path=path,
                user=user,
                said=said,
                arguments=arguments,
                recent=self._recent,
                siblings=len(made) - 1,
                was_read=path in self._read,
                was_edited=path in self._edited,
                is_partial=_RANGE.search(arguments) is not None,
                edits_by_quoting=self._edits_by_quoting,
            )
        contexts = [self._calls[call.id] for call in made]
        for context in contexts:
            if context.path:
                (self._edited if _EDITS.search(context.tool) else self._read).add(context.path)
        self._answer += [said, *(one.arguments for one in contexts)] if made else []

    def _end_answer(self) -> None:
        """End an answer: its text and calls are the previous activity from now on."""
        self._recent = "\n".join((self._recent, *self._answer))[-RECENT_CHARS:] if self._answer else self._recent
        self._said, self._answer = "", []

    def result(self, call_id: str, text: str, failed: bool = False) -> CallContext | None:
        """Return the agent's activity at the time of this result; None if its call is unknown."""
        context = self._calls.get(call_id)
        self._results += 1
        self._end_answer()
        hashes = [hash(line) if len(line) >= SEEN_CHARS else 0 for line in map(_bare, text.split("\n"))]
        seen = tuple(row for row, hashed in enumerate(hashes) if hashed in self._seen)
        self._seen.update(hashes)
        self._seen.discard(0)
        if context is None:
            return None
        return replace(context, results=self._results - 1, failed=failed, seen_rows=seen)


def contexts(request: Request, edits_by_quoting: bool, shown: Mapping[Place, str]) -> dict[Place, CallContext]:
    """Return the agent's activity at each tool result of a conversation.

    `shown` are the results that the model sees in another form than the client sent: it has not seen their cut parts.
    """
    history = CallHistory(edits_by_quoting)
    found: dict[Place, CallContext] = {}
    for at, message in enumerate(request.messages):
        if message.role == "assistant":
            history.answer("\n".join(part.text for part in message.parts if part.kind == "text"), _calls(message))
            continue
        for index, part in enumerate(message.parts):
            if part.kind == "tool_result":
                context = history.result(part.call_id, shown.get((at, index), part.text), part.failed)
                if context is not None:
                    found[at, index] = context
            elif message.role == "user" and part.kind == "text" and (words := own_words(part.text)):
                history.user(words)
    return found


def _calls(message: Message) -> Iterator[MadeCall]:
    for part in message.parts:
        if part.kind == "tool_call" and part.call_id:
            yield MadeCall(part.call_id, part.name, part.text if part.end - part.start <= MAX_ARGUMENT_BYTES else "")
