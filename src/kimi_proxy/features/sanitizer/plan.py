"""Which parts of a conversation are outputs of tools, long enough to look at."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from kimi_proxy.core.chat import Message, Part, Request
from kimi_proxy.core.reasons import Reason
from kimi_proxy.features.sanitizer.origins import origins, recovers
from kimi_proxy.features.sanitizer.output import Origin, Output
from kimi_proxy.features.sanitizer.sections import sections

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
