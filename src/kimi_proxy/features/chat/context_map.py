"""The messages of a request as sent, each with the received messages that it replaces."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypedDict

from kimi_proxy.core.chat import Message, Part, Request
from kimi_proxy.features.chat.compression import History
from kimi_proxy.features.chat.context import HEADING, Composition, MessageWeight
from kimi_proxy.features.chat.pipeline import ActiveCompression

PREVIEW_CHARS = 160


class SummarizedRowBody(TypedDict):
    index: int
    role: str
    kind: str
    tokens: int
    preview: str


class MessageRowBody(SummarizedRowBody):
    memory_tokens: int
    start_percent: float
    flags: list[str]


@dataclass(frozen=True)
class Pair:
    """A sent message, and the received messages that it replaces; none if we added it."""

    index: int
    sent: Message
    received: tuple[Message, ...]
    is_summary: bool = False

    @property
    def is_cut(self) -> bool:
        """Return whether it was shortened: a call of a tool on demand, and its first result, only get longer."""
        before = [part for message in self.received for part in message.parts]
        parts = list(zip(before, self.sent.parts, strict=False))
        longer = all(new.name != old.name or new.text.startswith(old.text) for old, new in parts)
        return self.is_changed and not (longer and len(parts) == len(before) == len(self.sent.parts))

    @property
    def is_changed(self) -> bool:
        return self.is_summary or [words(one) for one in self.received] != [words(self.sent)]


def pairs(received: Request, outgoing: Request, cut: ActiveCompression | None) -> list[Pair]:
    """Return them in the order in which the model reads them."""
    before = History(received)
    after = History(outgoing)
    origins = dict(zip(after.at, _origins(before, cut), strict=False))
    summary = after.at[len(cut.kept)] if cut else None
    systems = iter([message for message in received.messages if message.role == "system"])
    found: list[Pair] = []
    for index, message in enumerate(outgoing.messages):
        if message.role == "system":
            found.append(Pair(index, message, tuple(filter(None, [next(systems, None)]))))
        else:
            found.append(Pair(index, message, origins.get(index, ()), index == summary))
    return found


def _origins(before: History, cut: ActiveCompression | None) -> Iterator[tuple[Message, ...]]:
    """Return the received messages for each position, in order, including those behind the summary."""
    if cut is None:
        yield from ((message,) for message in before.messages)
        return
    yield from ((before.messages[place],) for place in cut.kept)
    yield tuple(message for place, message in enumerate(before.messages[: cut.cut]) if place not in cut.kept)
    yield from ((message,) for message in before.messages[cut.cut :])


def sent_to_json(pair: Pair, weighed: Composition, window: int | None) -> MessageRowBody:
    weight = weighed.messages[pair.index]
    whole = window or max(1, weighed.total)
    return {
        "index": pair.index,
        "role": pair.sent.role,
        "kind": weight.kind,
        "tokens": weight.tokens,
        "memory_tokens": weight.memory_tokens,
        "start_percent": round(weight.before * 100 / whole, 2),
        "flags": [*_flags(pair, weight), *(("buried",) if weighed.is_buried(weight, window) else ())],
        "preview": words(pair.sent)[:PREVIEW_CHARS],
    }


def _flags(pair: Pair, weight: MessageWeight) -> Iterator[str]:
    if pair.is_summary:
        yield "compressed"
    elif not pair.received or any(HEADING in part.text for part in pair.sent.parts):
        yield "reinjected"
    elif pair.is_cut:
        yield "masked"
    if weight.memory_tokens:
        yield "memory"


def words(message: Message) -> str:
    """Return all texts of a message, tool calls with their names."""
    return "\n".join(_words(part) for part in message.parts)


def _words(part: Part) -> str:
    if part.kind in ("image", "other"):
        return f"[{part.kind}]"
    return f"{part.name}({part.text})" if part.kind == "tool_call" else part.text


def summarized_messages(received: Request, cut: ActiveCompression | None) -> Mapping[int, Message]:
    """Return the messages behind a summary, by their index in the request as received."""
    if cut is None:
        return {}
    history = History(received)
    return {history.at[place]: history.messages[place] for place in range(cut.cut) if place not in cut.kept}


def summarized_to_json(index: int, message: Message, weighed: Composition) -> SummarizedRowBody:
    """`weighed` is the request as received."""
    weight = weighed.messages[index]
    return {
        "index": index,
        "role": message.role,
        "kind": weight.kind,
        "tokens": weight.tokens,
        "preview": words(message)[:PREVIEW_CHARS],
    }
