"""What becomes of an output: what is shown of it, and what has to be kept for that."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from kimi_proxy.core.ids import new_id
from kimi_proxy.core.prune import Cut, SourceType
from kimi_proxy.core.reasons import Why
from kimi_proxy.features.sanitizer.kinds import Kind
from kimi_proxy.features.sanitizer.output import Origin


@dataclass(frozen=True, slots=True)
class Task:
    """An output to shorten. Its ids are made of `seed`: nobody may guess them, and the same task is done alike."""

    text: str
    goal: str
    origin: Origin
    is_unread: bool
    threshold_tokens: int
    preview_chars: int
    seed: bytes
    hint: str = ""  # how to read what is left out, `{id}` in it, where the model has no tool for that
    kind: Kind = "code"  # found out by whoever shortens


@dataclass(frozen=True, slots=True)
class Hidden:
    """A text that markers name. Where lines were cut from it, which, so that they can be explained."""

    id: str
    text: str
    source_type: SourceType | None = None
    max_prune_ratio: float = 0.0
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class Shortened:
    """`why` says what was done, or why nothing was; with nothing hidden, the text is shown whole."""

    shown: str
    why: Why
    hidden: tuple[Hidden, ...]
    tokens_before: int
    tokens_after: int


class Names:
    """New ids, one after the other, each made of the seed and of how many there were."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._given = 0

    def new(self, prefix: str) -> str:
        self._given += 1
        return new_id(prefix, self._entropy())

    def _entropy(self) -> Callable[[int], bytes]:
        drawn = sha256(self._seed + self._given.to_bytes(4, "big")).digest()
        return lambda size: drawn[:size]
