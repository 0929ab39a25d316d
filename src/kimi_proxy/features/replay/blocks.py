"""A request as a provider's cache sees it: blocks in the order in which the model reads them."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kimi_proxy.core.chat import Part, Request
from kimi_proxy.features.composition import composition
from kimi_proxy.features.memory import Portion

# Ids are drawn at random. As the same one, they weigh the same in every run.
_ID = re.compile(r"\b(prn|msk|cmp)_[0-9a-hjkmnp-tv-z]{16}\b", re.ASCII)
# Clients move these marks to the end of the conversation with every request; they are no part of the text.
_MARK = re.compile(rb',?\s*"cache_control"\s*:\s*\{[^{}]*\}\s*,?')
_HAS_MARK = b'"cache_control"'

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Block:
    text: str
    tokens: int
    is_marked: bool = False  # the client asks to have everything up to its end cached


def blocks(request: Request, count: Count) -> tuple[Block, ...]:
    """The descriptions of the tools, the system's words that stand apart, and each message."""
    weighed = composition(request, lambda text: Portion(count(settled(text))))
    members = request.page.members
    tools = bytes(members.get("tools") or b"")
    apart = b"".join(bytes(members[name]) for name in ("system", "instructions") if name in members)
    made = [
        Block(_MARK.sub(b"", tools).decode("utf-8", "replace"), weighed.definitions, _HAS_MARK in tools),
        Block(_MARK.sub(b"", apart).decode("utf-8", "replace"), weighed.apart.tokens, _HAS_MARK in apart),
    ]
    for message, one in zip(request.messages, weighed.messages, strict=True):
        raw = request.body[message.start : message.end]
        made.append(Block(settled(_text(message.role, message.parts)), one.tokens, _HAS_MARK in raw))
    return tuple(block for block in made if block.tokens)


def settled(text: str) -> str:
    return _ID.sub(r"\1_0000000000000000", text) if "_" in text else text


def _text(role: str, parts: Iterable[Part]) -> str:
    told = [role]
    for part in parts:
        words = part.body[part.start : part.end].decode("utf-8", "replace") if not part.text else part.text
        told.append(f"{part.kind} {part.name} {part.call_id}\n{words}")
    return "\n".join(told)
