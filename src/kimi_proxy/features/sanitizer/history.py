"""The history of an agent's calls: what it was doing when each tool answered."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from kimi_proxy.core.chat import Message, Request
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.prune import CallContext
from kimi_proxy.features.sanitizer.plan import MAX_ARGUMENT_BYTES, origin_of, own_words

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
    """Fed with a conversation in its order; says of each result what the agent was doing when it came."""

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
        """Take what the user said, without what clients put among it."""
        self._newest = _encodable(words[:USER_CHARS])
        self._first = self._first or self._newest
        self._end_answer()

    def answer(self, said: str, calls: Iterable[MadeCall]) -> None:
        """Take what the agent said, and the calls that it made with it; an answer may come in pieces."""
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
        """An answer has ended: what was said and called in it is what came before the next."""
        self._recent = "\n".join((self._recent, *self._answer))[-RECENT_CHARS:] if self._answer else self._recent
        self._said, self._answer = "", []

    def result(self, call_id: str, text: str, failed: bool = False) -> CallContext | None:
        """Return what the agent was doing when this result came; None if its call is unknown."""
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
    """Return for each tool result of a conversation what the agent was doing when it came.

    `shown` are those that the model sees otherwise than the client sent them: what was cut from them was not seen.
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
