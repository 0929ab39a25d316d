"""Which parts of a conversation are outputs of tools, long enough to look at."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import zip_longest
from typing import Literal

from kimi_proxy.core import json
from kimi_proxy.core.chat import Message, Part, Request
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.errors import ParseError, Reason
from kimi_proxy.core.json import JsonValue


@dataclass(frozen=True, slots=True)
class Origin:
    """Who said it: the tool, the file or command that it was asked about, and whether it calls itself a failure."""

    tool: str = ""
    path: str = ""
    command: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """`text` is what stands from `start` to `end` in the text of the part at `spot`."""

    spot: Place
    start: int
    end: int
    text: str
    origin: Origin
    key: bytes  # of the place in the conversation, and of the text
    is_unread: bool  # the model has not answered since
    whole_because: Reason | Literal[""] = ""  # a reason that can be told without looking at the text


MAX_ARGUMENT_BYTES = 16 * 1024  # a longer one is a file to be written

_PATHS = ("file_path", "path", "filePath", "filename", "file", "target_file", "absolute_path", "notebook_path", "uri")
_COMMANDS = ("command", "cmd", "script", "input", "code")
# `recover_text` itself, or under the name that a client gives to the tools of a server: mcp__pruner__recover_text.
_RECOVERING = re.compile(r"recover_(?:text|range)\b|recover_(?:text|range)$")


def origins(message: Message) -> Iterator[tuple[str, Origin]]:
    """The calls of a message: their ids, and what was asked."""
    for part in message.parts:
        if part.kind == "tool_call" and part.call_id:
            arguments = part.text if part.end - part.start <= MAX_ARGUMENT_BYTES else ""
            yield part.call_id, _origin(part.name, arguments)


def recovers(tool: str) -> bool:
    """Whether a tool of this name gives originals back."""
    return _RECOVERING.search(tool) is not None


def _origin(tool: str, arguments: str) -> Origin:
    try:
        asked = json.decode(arguments.encode("utf-8", "replace"))
    except ParseError:
        return Origin(tool, command=arguments)
    if not isinstance(asked, Mapping):
        return Origin(tool, command=arguments)
    return Origin(tool, _first(asked, _PATHS), _first(asked, _COMMANDS))


def _first(asked: Mapping[str, JsonValue], names: Iterable[str]) -> str:
    for name in names:
        value = asked.get(name)
        if isinstance(value, str):
            return _sound(value)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return _sound(" ".join(map(str, value)))
    return ""


def _sound(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


MAX_QUESTION_CHARS = 2000

# What a client wraps outputs in. A tag such as <system-reminder> holds instructions, and stays as it is.
_ELEMENT = re.compile(
    r"<((?:file|tool|console|command|terminal|bash|local-command)[-_](?:contents?|output|result|stdout|stderr)"
    r"|file|codebase|tool|console|output|stdout|stderr)(\s[^<>]{0,300})?>"
)
_NAMED = re.compile(r"(?:path|name|src|source|file)\s*=\s*[\"']?([^\"'\s>]{1,300})")
_HEADER = re.compile(r"@(file|codebase|tool|console|output)\b:?[ \t]*(\S*)[^\n]*(?:\n|\Z)")
_FENCE = re.compile(r"(`{3,}|~{3,})([^\n`]*)\n")
# An editor's context: ```src/app.py (10-80)
_FILE_NAMED = re.compile(r"[ \t]*(?:\w+[ \t]+)?([\w@~./\\ -]{0,250}[\w-]+\.\w{1,10})(?:[ \t]*\(\d+-\d+\))?[ \t]*")


@dataclass(frozen=True, slots=True)
class Section:
    """`text[start:end]` is the output of `tool`, about the file of that `name` if it has one."""

    start: int
    end: int
    tool: str
    name: str


def sections(text: str, min_chars: int) -> list[Section]:
    """The sections of at least `min_chars`, in their order; none overlaps another."""
    found = sorted((*_elements(text), *_headed(text), *_fenced(text)), key=lambda s: (s.start, -s.end))
    apart: list[Section] = []
    for section in found:
        if section.end - section.start >= min_chars and (not apart or section.start >= apart[-1].end):
            apart.append(section)
    return apart


def _elements(text: str) -> Iterator[Section]:
    at = 0 if "<" in text else len(text)
    endless: set[str] = set()  # nothing closes them any more: looking again and again would take its time
    while opening := _ELEMENT.search(text, at):
        at = opening.end()
        end = -1 if opening[1] in endless else text.find(f"</{opening[1]}>", at)
        if end < 0:
            endless.add(opening[1])
        else:
            named = _NAMED.search(opening[2] or "")
            yield Section(at, end, opening[1], named[1] if named else "")
            at = end


def _headed(text: str) -> Iterator[Section]:
    headers = [header for at in _lines_with(text, "@") if (header := _HEADER.match(text, at))]
    for header, following in zip_longest(headers, headers[1:]):
        start, end = header.end(), following.start() if following else len(text)
        fence = _FENCE.match(text, start)
        if fence is not None:
            start, end = fence.end(), _end_of_fence(text, fence)
        elif following is None:
            end = _before_question(text, start)
        yield Section(start, end, header[1], header[2])


def _fenced(text: str) -> Iterator[Section]:
    after = 0
    for at in sorted((*_lines_with(text, "```"), *_lines_with(text, "~~~"))):
        fence = _FENCE.match(text, at) if at >= after else None
        if fence is None:
            continue
        end = _end_of_fence(text, fence)
        named = _FILE_NAMED.fullmatch(fence[2])
        if named is not None:
            yield Section(fence.end(), end, "file", named[1].strip())
        after = end + len(fence[1]) + 1


def _lines_with(text: str, beginning: str) -> Iterator[int]:
    """Where the lines begin that begin so; a plain search, since texts are long and such lines are few."""
    if beginning[0] not in text:  # one character is found ten times as fast as two
        return
    if text.startswith(beginning):
        yield 0
    at = text.find(f"\n{beginning}")
    while at >= 0:
        yield at + 1
        at = text.find(f"\n{beginning}", at + 1)


def _end_of_fence(text: str, fence: re.Match[str]) -> int:
    """Where the line begins that closes a block, or the end of the text."""
    end = text.find(f"\n{fence[1]}", fence.end() - 1)
    return len(text) if end < 0 else end + 1


def _before_question(text: str, start: int) -> int:
    """Nothing ends a last section, and people ask below what they paste: the last paragraph is theirs."""
    end = text.rstrip().rfind("\n\n", start)
    return end + 1 if end >= 0 and len(text) - end <= MAX_QUESTION_CHARS else len(text)


# Above this an output is cut even if the model asked for the same text before.
HUGE_CHARS = 32_000

_REMINDER = "system-reminder"
# Clients without tool calls of their own tell results as text: [execute_command for 'npm test'] Result:
_TOLD = re.compile(r"\[(\w+) for '([^\n]{0,300})'\] Result:\s*\Z")
_TOLD_RECOVERY = re.compile(r"<tool_name>\s*\w*recover_(?:text|range)\s*</tool_name>")


@dataclass(frozen=True, slots=True)
class Plan:
    """The outputs of a request that may be shortened, in the order in which the model reads them."""

    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """An output whose place among the others is not known yet."""

    output: Output
    call_id: str


def plan(request: Request, threshold_tokens: int) -> Plan:
    """Every output that may have more tokens than that; whether it has, is found out later."""
    if not _has_long(request, threshold_tokens):
        return Plan(())
    unread = _first_unread(request.messages)
    asked: dict[str, Origin] = {}  # the last call of each id: some clients number their calls anew in every turn
    found: list[_Found] = []
    for at, message in enumerate(request.messages):
        asked.update(origins(message))
        found += _outputs(request, at, message, asked, threshold_tokens, at >= unread)
    return Plan(tuple(_placed(_anchor(request), found)) if found else ())


def _has_long(request: Request, threshold_tokens: int) -> bool:
    parts = (part for message in request.messages if message.role in ("user", "tool") for part in message.parts)
    return any(_may_be_long(part, threshold_tokens) for part in parts)


def _may_be_long(part: Part, threshold_tokens: int) -> bool:
    """A token has one byte at least, and JSON needs as many for it or more."""
    return part.end - part.start - 2 > threshold_tokens and part.kind in ("text", "tool_result") and part.is_string


def _first_unread(messages: Sequence[Message]) -> int:
    """The message after the last that the model said."""
    said = (at for at in range(len(messages) - 1, -1, -1) if messages[at].role == "assistant")
    return next(said, -1) + 1


def _outputs(
    request: Request, at: int, message: Message, asked: Mapping[str, Origin], threshold_tokens: int, is_unread: bool
) -> Iterator[_Found]:
    for index, part in enumerate(message.parts):
        if not _may_be_long(part, threshold_tokens):
            continue
        spot = (at, index)
        if part.kind == "tool_result":
            origin = replace(asked.get(part.call_id, Origin()), failed=part.failed)
            because: Reason | Literal[""] = "recovered" if recovers(origin.tool) else ""
            end = _before_reminders(part.text)
            yield _Found(Output(spot, 0, end, part.text[:end], origin, b"", is_unread, because), part.call_id)
        elif message.role == "user":
            because = "recovered" if _follows_recovery(request, at) else ""
            for start, end, origin in _told(message, index, threshold_tokens):
                yield _Found(Output(spot, start, end, part.text[start:end], origin, b"", is_unread, because), "")


def _before_reminders(text: str) -> int:
    """Some clients speak to the model at the end of what a tool said: that is theirs."""
    end = len(text)
    while text[:end].rstrip().endswith(f"</{_REMINDER}>") and (start := text.rfind(f"<{_REMINDER}>", 0, end)) >= 0:
        end = start
    return end


def _told(message: Message, index: int, threshold_tokens: int) -> Iterator[tuple[int, int, Origin]]:
    """The outputs in a text of the user."""
    text = message.parts[index].text
    before = message.parts[index - 1] if index else None
    result = _TOLD.match(before.text[-400:]) if before is not None and before.kind == "text" else None
    if result is not None:
        yield 0, len(text), _asked(result[1], result[2])
        return
    # A character has four bytes at most, and a token one at least.
    for section in sections(text, threshold_tokens // 4):
        yield section.start, section.end, Origin(section.tool, section.name)


def _asked(tool: str, about: str) -> Origin:
    return Origin(tool, command=about) if "command" in tool else Origin(tool, path=about)


def _follows_recovery(request: Request, at: int) -> bool:
    before = request.messages[at - 1] if at else None
    if before is None or before.role != "assistant":
        return False
    return any(_TOLD_RECOVERY.search(part.text) for part in before.parts if part.kind == "text")


def _anchor(request: Request) -> bytes:
    """What a conversation began with: call ids are often unique in theirs only."""
    first = next((message.parts for message in request.messages if message.role == "user"), ())
    digest = sha256()
    for part in first:
        if part.kind == "text":
            digest.update(part.body[part.start : part.end])
    return digest.digest()


def _placed(anchor: bytes, found: Sequence[_Found]) -> Iterator[Output]:
    """Each output with the key of its place: the id of its call, or else how many of the same text came before.

    The text alone would not do: what was cut may stand here again because the model asked for all of it.
    """
    places: Counter[tuple[str, bytes]] = Counter()
    texts: Counter[bytes] = Counter()
    for one in found:
        hashed = sha256(one.output.text.encode("utf-8", "surrogatepass")).digest()
        place = (one.call_id, hashed)
        nth = places[place].to_bytes(4, "big")
        key = sha256(anchor + nth + hashed + one.call_id.encode("utf-8", "surrogatepass")).digest()
        because = one.output.whole_because or _asked_again(one.output, texts[hashed])
        places[place] += 1
        texts[hashed] += 1
        yield replace(one.output, key=key, whole_because=because)


def _asked_again(output: Output, times_before: int) -> Reason | Literal[""]:
    """Whoever asks for the same text again missed something in it."""
    return "asked_again" if times_before and len(output.text) <= HUGE_CHARS else ""


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
    """The lines after a marker such as `Objective:` in the newest words of the user, else the first and the newest."""
    said = list(_said(request))
    if not said:
        return ""
    return _marked(said[-1]) or _both(said[0], said[-1])


def _said(request: Request) -> Iterator[str]:
    """What the user said in each message, without what tools and clients put there."""
    for message in request.messages:
        if message.role == "user":
            texts = (_own_words(part.text) for part in message.parts if part.kind == "text")
            if words := " \n".join(text for text in texts if text):
                yield words


def _own_words(text: str) -> str:
    for section in reversed(sections(text, MAX_CHARS)):
        text = text[: section.start] + text[section.end :]
    own: list[str] = []
    at = 0
    while aside := _ASIDE.search(text, at):
        own.append(text[at : aside.start()])
        end = text.find(f"</{aside[1]}>", aside.end())
        at = aside.end() if end < 0 else end + len(aside[1]) + 3
    return "".join((*own, text[at:])).strip()


def _marked(text: str) -> str:
    found = _MARKER.search(text)
    return _short(text[found.end() :], MAX_CHARS) if found else ""


def _both(first: str, newest: str) -> str:
    first, newest = _short(first, MAX_CHARS), _short(newest, MAX_CHARS)
    if first == newest:
        return newest
    room = MAX_CHARS - 1
    last = newest[: max(room // 2, room - len(first))]
    return f"{first[: room - len(last)]}\n{last}"


def _short(text: str, chars: int) -> str:
    return " ".join(text[: 4 * MAX_CHARS].split())[:chars].strip()
