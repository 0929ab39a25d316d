"""What a model wrote that it can only have read in lines that a policy would have cut.

The recorded model saw everything. Where it quotes, in an answer or in the arguments of a call, a line of at least 20
characters or a word of at least 12 that stands in what was cut and nowhere in what was left, it would have had to read
that back first. It is taken to read all of the lines in a row that were cut there.
"""

import re
from collections.abc import Iterator

from kimi_proxy.core.chat import Message, Request

MIN_LINE_CHARS = 20
MIN_WORD_CHARS = 12

_WORD = re.compile(rf"[\w./:@#-]{{{MIN_WORD_CHARS},}}")
_NUMBER = re.compile(r"^\s*\d+\s*[\t→│|:]")


def written_after(request: Request, following: Request | None) -> str:
    """What the model answered, as the next request tells it; nothing if the client tells another history."""
    if following is None:
        return ""
    asked, told = request.messages, following.messages
    answer: list[Message] = []
    for message in told[len(asked) :]:
        if message.role != "assistant":
            break
        answer.append(message)
    return "\n".join(part.text for message in answer for part in message.parts)


def needed(came: Request, left: Request, written: str) -> list[str]:
    """The passages that were cut and that `written` draws on."""
    if came.body == left.body or not written:
        return []
    said = f"{written}\n{_unescaped(written)}"
    seen = _texts(left)
    seen_lines = {_bare(line) for text in seen for line in text.split("\n")}
    shown = "\n".join(seen)
    words = {word for word in _words(said) if word not in shown}
    cut = (text for text in _texts(came) if text not in seen)
    return [run for text in cut for run in _runs(text, seen_lines) if _is_quoted(run, words, said)]


def _runs(text: str, seen_lines: set[str]) -> Iterator[str]:
    """Lines in a row that nothing shows any more; empty ones among them are no end."""
    run: list[str] = []
    for line in text.split("\n"):
        bare = _bare(line)
        if bare and bare in seen_lines:
            if run:
                yield "\n".join(run)
            run = []
        elif bare or run:
            run.append(line)
    if run:
        yield "\n".join(run)


def _is_quoted(run: str, words: set[str], said: str) -> bool:
    if any(word in run for word in words):
        return True
    lines = map(_bare, run.split("\n"))
    return any(len(line) >= MIN_LINE_CHARS and line in said for line in lines)


def _bare(line: str) -> str:
    """A line without the number that a tool put before it."""
    return _NUMBER.sub("", line, count=1).strip()


def _unescaped(written: str) -> str:
    """The arguments of a call are JSON, in which a quote is told as two characters."""
    return written.replace('\\"', '"').replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\")


def _words(text: str) -> Iterator[str]:
    bare = (word.strip("./:@#-") for word in _WORD.findall(text))
    return (word for word in bare if len(word) >= MIN_WORD_CHARS)


def _texts(request: Request) -> dict[str, None]:
    """Each once, in the order in which they are read."""
    return dict.fromkeys(part.text for message in request.messages for part in message.parts)
