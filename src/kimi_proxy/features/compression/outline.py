"""A summary that nobody has to be asked for: who asked for what, what was done about it, what went wrong."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kimi_proxy.core.chat import Message, Part

ASK_CHARS, SAID_CHARS, CALL_CHARS, RESULT_CHARS = 400, 240, 120, 160

_TROUBLE = re.compile(r"(?i)error|exception|fail|fatal|traceback|panic|erreur|échec")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    worth: int  # the higher, the longer it stays when room is scarce


def outline(messages: Sequence[Message], before: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """As much of the story as fits: what people asked goes last, single calls of tools go first.

    `before` is the summary of what came before these messages.
    """
    lines = [_Line(line, 3) for line in before.split("\n") if line.strip()]
    lines += [line for message in messages for line in _lines(message)]
    costs = [count(line.text) + 1 for line in lines]
    # Among lines of the same worth the newer ones stay.
    by_worth = sorted(range(len(lines)), key=lambda at: (-lines[at].worth, -at))
    room, kept = max_tokens, set[int]()
    for at in by_worth:
        if costs[at] <= room:
            room -= costs[at]
            kept.add(at)
    return "\n".join(lines[at].text for at in sorted(kept))


def _lines(message: Message) -> Iterator[_Line]:
    for part in message.parts:
        match part.kind, message.role:
            case "text", "assistant":
                yield from _said("the assistant said", part.text, SAID_CHARS, 1)
            case "text", _:
                yield from _said("the user said", part.text, ASK_CHARS, 3)
            case "tool_call", _:
                yield _Line(f"- called {part.name} {_short(part.text, CALL_CHARS)}", 0)
            case "tool_result", _:
                yield from _result(part)
            case _:
                pass


def _said(who: str, text: str, chars: int, worth: int) -> Iterator[_Line]:
    if text.strip():
        yield _Line(f"- {who}: {_short(text, chars)}", worth)


def _result(part: Part) -> Iterator[_Line]:
    """Results are long and mostly of use at once; trouble is worth remembering."""
    found = next((line for line in part.text[-20_000:].split("\n") if _TROUBLE.search(line[:500])), None)
    if found is not None or part.failed:
        yield _Line(f"  trouble: {_short(found or part.text, RESULT_CHARS)}", 2)


def _short(text: str, chars: int) -> str:
    one_line = _SPACE.sub(" ", text[: chars * 8]).strip()
    return one_line if len(one_line) <= chars else one_line[: chars - 1].rstrip() + "…"
