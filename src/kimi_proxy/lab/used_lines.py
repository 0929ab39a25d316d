"""Finds the lines of tool outputs that the agent used: those that it later wrote word for word.

A line counts if it has 20 characters or more, nothing had shown or written it before, and the agent wrote it in its
words, its thinking or a call's arguments before another output showed it again. Paraphrases and short names are
missed, so the measured loss is a lower bound.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.lines import ROW_NUMBER
from kimi_proxy.lab.transcripts.transcript import AgentRequest, Transcript, items

MIN_LINE_CHARS = 20


@dataclass(frozen=True, slots=True)
class LineUse:
    """`output` is counted over the session, `request` is the one whose answer wrote the line."""

    output: int
    request: int
    line: str
    by: str  # the tool that was called with it; "" for a message


def uses(transcript: Transcript) -> list[LineUse]:
    """Return the uses of lines in the order in which they were written."""
    fresh = _FreshLines()
    found: list[LineUse] = []
    place = -1
    for at, request in enumerate(transcript.requests):
        for text in request.user:
            fresh.know(text)
        for output in request.outputs:
            place += 1
            fresh.show(output.text, place)
        for by, text in _texts_of(request):
            found += [LineUse(output, at, line, by) for output, line in fresh.take(text)]
            fresh.know(text)
    last = len(transcript.requests) - 1
    for text in _removed_lines(transcript.patch):
        found += [LineUse(output, last, line, "patch") for output, line in fresh.take(text)]
    return found


class _FreshLines:
    """Lines that one output alone has shown and nothing has written, by how they begin."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._by_beginning: dict[str, dict[str, int]] = {}

    def show(self, text: str, output: int) -> None:
        for line in set(lines_of(text)):
            if hash(line) in self._known:
                self._forget(line)
            else:
                self._known.add(hash(line))
                self._by_beginning.setdefault(line[:MIN_LINE_CHARS], {})[line] = output

    def know(self, text: str) -> None:
        self._known.update(map(hash, lines_of(text)))

    def take(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield the lines found in `text`, each with the output that showed it, and remove them."""
        beginnings = self._by_beginning
        for at in range(len(text) - MIN_LINE_CHARS + 1):
            lines = beginnings.get(text[at : at + MIN_LINE_CHARS])
            for line in [line for line in lines or () if text.startswith(line, at)]:
                yield beginnings[line[:MIN_LINE_CHARS]][line], line
                self._forget(line)

    def _forget(self, line: str) -> None:
        lines = self._by_beginning.get(line[:MIN_LINE_CHARS])
        if lines is not None and lines.pop(line, None) is not None and not lines:
            del self._by_beginning[line[:MIN_LINE_CHARS]]


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines that can count, without indentation and without the numbers that a tool put before them."""
    for line in text.split("\n"):
        if len(line) >= MIN_LINE_CHARS:
            bare = bare_line(line)
            if len(bare) >= MIN_LINE_CHARS:
                yield bare


def bare_line(line: str) -> str:
    numbered = ROW_NUMBER.match(line)
    return (line[numbered.end() :] if numbered else line).strip()


def _texts_of(request: AgentRequest) -> Iterator[tuple[str, str]]:
    yield "", request.said
    yield "", request.thinking
    for call in request.calls:
        for text in argument_texts(call.arguments):
            yield call.name, text


def argument_texts(arguments: str) -> Iterator[str]:
    """Yield the strings in a call's arguments as the tool gets them; all of it if they are no JSON."""
    try:
        given = json.decode(arguments.encode("utf-8", "replace")) if arguments[:1] in ("{", "[") else arguments
    except ParseError:
        given = arguments
    left: list[JsonValue] = [given]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            left += reversed(value.values())
        else:
            left += reversed(items(value))


def _removed_lines(patch: str) -> Iterator[str]:
    """Yield the lines that a patch removes: the agent changed them, by whatever command."""
    for row in patch.split("\n"):
        if row.startswith("-") and not row.startswith("---"):
            yield row[1:].strip()
