"""A conversation as it is written beforehand: what is said in each turn, and which tools are called."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.types import JsonObject

RECOVER = "recover_text"  # our own tool: the proxy answers it, the agent never hears of it


@dataclass(frozen=True, slots=True)
class Call:
    """A tool, what it is asked, and what it will print."""

    tool: str
    arguments: JsonObject
    prints: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model says at once: words, calls, or both."""

    text: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A person says something; the model replies until it calls no more tools."""

    said: str
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    title: str
    wire: Wire
    model: str
    system: str
    turns: tuple[Turn, ...]

    def call_id(self, turn: int, reply: int, call: int) -> str:
        return f"call_{self.name}_{turn}_{reply}_{call}"


@dataclass(frozen=True, slots=True)
class Spoken:
    """A reply with the ids of its calls."""

    text: str
    calls: tuple[tuple[str, Call], ...]


class Script:
    """What the model says to each newest message, and what each call prints."""

    def __init__(self, conversations: Iterator[Conversation]) -> None:
        self.after_text: dict[str, Spoken] = {}
        self.after_call: dict[str, Spoken] = {}
        self.calls: dict[str, Call] = {}
        for conversation in conversations:
            for number, turn in enumerate(conversation.turns):
                self._learn(conversation, number, turn)

    def _learn(self, conversation: Conversation, number: int, turn: Turn) -> None:
        spoken = [
            Spoken(reply.text, tuple((conversation.call_id(number, n, c), call) for c, call in enumerate(reply.calls)))
            for n, reply in enumerate(turn.replies)
        ]
        self.after_text[turn.said] = spoken[0]
        for one, then in pairwise(spoken):
            self.after_call |= {id: then for id, _ in one.calls}
            self.calls |= dict(one.calls)
