"""A conversation as compression sees it: its messages without those of the system, and where it can be cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

from kimi_proxy.core.chat import Message, Request

# What clients say to the model in the user's name before the user says anything.
_PREAMBLES = (
    "<system-reminder>",
    "<user_instructions>",
    "<environment_context>",
    "<permissions",
    "# AGENTS.md instructions",
)
_FICKLE = "<system-reminder>"  # comes and goes between the turns of a conversation


@dataclass(frozen=True)
class History:
    """Places are counted without the system's messages, which clients and other steps add and move."""

    request: Request

    @cached_property
    def at(self) -> tuple[int, ...]:
        """The index in the request of each place."""
        return tuple(at for at, message in enumerate(self.request.messages) if message.role != "system")

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self.request.messages[at] for at in self.at)

    @cached_property
    def exchanges(self) -> tuple[int, ...]:
        """Where somebody begins to say something, and the history can be cut."""
        asks = (at for at, message in enumerate(self.messages) if is_ask(message))
        return tuple(at for at in asks if not (at and is_ask(self.messages[at - 1])) and self._can_cut(at))

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Where the model goes on after the results of its tools, and the history can be cut."""
        told = (at for at in range(1, len(self.messages)) if _is_result(self.messages[at - 1]))
        return tuple(at for at in told if self.messages[at].role == "assistant" and self._can_cut(at))

    @cached_property
    def preamble(self) -> tuple[int, ...]:
        """Instructions of the client that stand in the user's first messages."""
        first = next((at for at, message in enumerate(self.messages) if message.role == "assistant"), 0)
        return tuple(at for at in range(first) if _is_preamble(self.messages[at]))

    def fingerprint(self, cut: int) -> bytes:
        """Of what was said before the cut. Results of tools are known by their calls: clients shorten old ones."""
        digest = blake2b(digest_size=32)
        for message in self.messages[:cut]:
            digest.update(f"{message.role}\n".encode())
            for piece in _said(message):
                digest.update(len(piece).to_bytes(8, "big") + piece)
        return digest.digest()

    def _can_cut(self, place: int) -> bool:
        return not any(asked < place <= answered for asked, answered in self._calls)

    @cached_property
    def _calls(self) -> Sequence[tuple[int, int]]:
        """Where each call stands, and the last of its results. Some clients number their calls anew in every turn."""
        asked: dict[str, int] = {}
        spans: dict[tuple[str, int], int] = {}
        for at, message in enumerate(self.messages):
            for part in message.parts:
                if part.kind == "tool_call":
                    asked[part.call_id] = at
                elif part.call_id in asked:
                    spans[part.call_id, asked[part.call_id]] = at
        return [(call, answered) for (_, call), answered in spans.items()]


def is_ask(message: Message) -> bool:
    """Whether somebody says something, rather than a tool."""
    return message.role == "user" and not any(part.call_id for part in message.parts)


def _is_result(message: Message) -> bool:
    return message.role == "tool" or (message.role == "user" and not is_ask(message))


def _is_preamble(message: Message) -> bool:
    return any(part.text.lstrip().startswith(_PREAMBLES) for part in message.parts if part.kind == "text")


def _said(message: Message) -> Iterator[bytes]:
    for part in message.parts:
        if part.kind == "text" and not part.text.lstrip().startswith(_FICKLE):
            yield part.text.strip().encode("utf-8", "surrogatepass")
        elif part.kind in ("tool_call", "tool_result"):
            yield f"{part.kind} {part.call_id} {part.name}".encode("utf-8", "surrogatepass")
