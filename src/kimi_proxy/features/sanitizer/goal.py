"""What a conversation is about, in a few words: how much a line is worth is judged by them."""

import re
from collections.abc import Iterator

from kimi_proxy.core.chat import Request
from kimi_proxy.features.sanitizer.sections import sections

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
