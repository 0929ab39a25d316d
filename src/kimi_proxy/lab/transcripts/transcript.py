"""The one shape that every agent's session is read into, and how it is built up entry by entry."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue

MAX_SESSION_CHARS = 64 * 1024**2  # limit of one session; the rest is ignored

MAX_DOCUMENT_BYTES = 48 * 1024**2  # of a file that is one JSON document

_MAX_COUNT = 10**9  # tokens of one request: a larger count is damage, and would make every share of the report nonsense
_MAX_SECONDS = 1e11  # of a time since 1970; larger numbers are milliseconds
_NUMBER = (int, float)


@dataclass(slots=True)
class ProviderUsage:
    """The provider's token counts; `input` was neither read from the prompt cache nor written to it."""

    input: int = 0
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    output: int = 0

    @classmethod
    def from_counts(
        cls, input: JsonValue, cache_read: JsonValue, cache_write: JsonValue, output: JsonValue
    ) -> "ProviderUsage":
        """Return the counts that a session has, none of them for an hour."""
        return cls(number(input), number(cache_read), number(cache_write), 0, number(output))

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write_5m + self.cache_write_1h


@dataclass(slots=True)
class AgentCall:
    id: str
    name: str
    arguments: str  # JSON, or whatever text the tool takes


@dataclass(slots=True)
class CallOutput:
    call_id: str
    text: str
    failed: bool = False


@dataclass(slots=True)
class AgentRequest:
    """One request to the provider: the new part of its prompt, and the model's answer."""

    at: float = 0.0  # seconds since 1970; 0 if the agent keeps no times
    model: str = ""
    user: list[str] = field(default_factory=list)  # words of the user, and text that the agent adds to them
    outputs: list[CallOutput] = field(default_factory=list)
    said: str = ""
    thinking: str = ""
    calls: list[AgentCall] = field(default_factory=list)
    usage: ProviderUsage | None = None
    is_compacted: bool = False  # a summary has taken the place of everything before this request
    is_user_turn: bool = False  # a person spoke, as opposed to tools alone


@dataclass(slots=True)
class Transcript:
    agent: str
    id: str
    requests: list[AgentRequest] = field(default_factory=list)
    instructions: str = ""  # the system prompt, where the agent keeps it
    tools: dict[str, str] = field(default_factory=dict)  # descriptions by name, where the session keeps them
    patch: str = ""  # the diff that was handed in, where a benchmark keeps one
    is_sidechain: bool = False
    has_tools: bool = True  # the agent offers tools; else it writes commands and results as plain text
    version: str = ""  # of the agent's program, where the session keeps it


class TranscriptBuilder:
    """Collects the next prompt until the model answers; an answer may arrive in pieces.

    Texts, ids and arguments are taken as they are in the session's JSON.
    """

    def __init__(self, agent: str, name: str, max_chars: int = MAX_SESSION_CHARS) -> None:
        self._max_chars = max_chars
        self.transcript = Transcript(agent, name)
        self.model = ""
        self._next = AgentRequest()
        self._has_input = False
        self._key: str | None = None
        self._chars = 0

    def add_user(self, content: JsonValue, at: float = 0.0, is_person: bool = True) -> None:
        text = text_of(content)
        if text and self._fits(text):
            self._next.user.append(text)
            self._next.is_user_turn |= is_person
            self._note_time(at)

    def add_output(self, call_id: JsonValue, content: JsonValue, failed: bool = False, at: float = 0.0) -> None:
        text = text_of(content)
        if self._fits(text):
            self._next.outputs.append(CallOutput(string(call_id), text, failed))
            self._note_time(at)

    def start_over(self) -> None:
        self._next = AgentRequest(is_compacted=True)
        self._has_input = True

    def answer(self, key: str | None = None, at: float = 0.0) -> AgentRequest:
        """Return the request that a piece of an answer belongs to.

        Pieces with the same `key` belong to one answer, even with outputs between them; without a key, an answer ends
        when something is added to the next prompt.
        """
        requests = self.transcript.requests
        if not requests or (key != self._key if key is not None else self._has_input):
            self._next.at = self._next.at or at
            self._next.model = self.model
            requests.append(self._next)
            self._next = AgentRequest()
            self._has_input = False
            self._key = key
        return requests[-1]

    def add_text(self, content: JsonValue, key: str | None = None, at: float = 0.0) -> None:
        text = text_of(content)
        if text and self._fits(text):
            request = self.answer(key, at)
            request.said = f"{request.said}\n{text}" if request.said else text

    def add_thinking(self, content: JsonValue, key: str | None = None, at: float = 0.0) -> None:
        text = text_of(content)
        if self._fits(text):
            self.answer(key, at).thinking += text

    def add_call(
        self, id: JsonValue, name: JsonValue, given: JsonValue, key: str | None = None, at: float = 0.0
    ) -> None:
        arguments = arguments_of(given)
        if self._fits(arguments):
            self.answer(key, at).calls.append(AgentCall(string(id), string(name), arguments))

    def finish(self) -> Iterator[Transcript]:
        """Yield the transcript, unless no request was made in it."""
        if self.transcript.requests:
            yield self.transcript

    def _note_time(self, at: float) -> None:
        self._has_input = True
        self._next.at = max(self._next.at, at)

    def _fits(self, text: str) -> bool:
        self._chars += len(text)
        return self._chars <= self._max_chars


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading; raise OSError for a link, a device, a pipe or a socket.

    Sessions lie where other programs write. A link could lead to an endless device, and opening a pipe would wait.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    opened = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(f"{path} is not a regular file")
    return os.fdopen(opened, "rb")


def read_document(path: Path) -> Mapping[str, JsonValue]:
    """Return the JSON object that a file is; an empty one if it is something else, a link, or too large."""
    with open_regular(path) as file:
        raw = file.read(MAX_DOCUMENT_BYTES + 1)
    return document(raw) if len(raw) <= MAX_DOCUMENT_BYTES else {}


def entry(line: bytes, names: Sequence[str]) -> Mapping[str, JsonValue]:
    """Return these members of the JSON object that a line is; none if it is truncated or something else."""
    try:
        return json.fields(line, names)
    except ParseError:  # or it has half of a surrogate pair, which the slower way reads
        whole = document(line)
        return {name: whole[name] for name in names if name in whole}


def document(raw: bytes) -> Mapping[str, JsonValue]:
    """Return the JSON object that a whole file is; an empty one if it is none."""
    try:
        return mapping(json.decode(raw))
    except ParseError:
        return {}


def mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, Mapping) else {}


def items(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else ()


def string(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def number(value: JsonValue) -> int:
    """Return a count of tokens; 0 for anything that cannot be one, such as infinity or not-a-number."""
    return int(value) if isinstance(value, _NUMBER) and 0 < value <= _MAX_COUNT else 0


def text_of(content: JsonValue) -> str:
    """Return the text of a message's content: a string, a part with text, or parts of which some have it."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return string(content.get("text")) or text_of(content.get("content"))
    return "\n".join(text for text in map(text_of, items(content)) if text)


def arguments_of(given: JsonValue) -> str:
    return given if isinstance(given, str) else json.encode(given).decode("utf-8", "replace")


def seconds(stamp: JsonValue) -> float:
    """Return a time in seconds since 1970, from ISO 8601, seconds or milliseconds; 0 if it is none of them."""
    if isinstance(stamp, _NUMBER):
        at = stamp / 1000 if stamp > _MAX_SECONDS else float(stamp)
        return at if 0 < at <= _MAX_SECONDS else 0.0
    try:
        return datetime.fromisoformat(string(stamp)).timestamp()
    except (ValueError, OverflowError, OSError):
        return 0.0
