"""How a request lies in its window: what stands where, and whether its instructions are buried."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kimi_proxy.features.composition import Composition, Ingredient, Weighed

SLICES = 20
BURIED_SHARE = 0.5  # of the window: what lies further from the end is hardly heeded

Slice = dict[Ingredient, int]


@dataclass(frozen=True, slots=True)
class Sink:
    """The system's words, and those of them that are buried: more of the window than a given share follows on them."""

    system_tokens: int
    buried_tokens: int
    distance: int | None  # tokens after the last of these words; None if there are none

    @property
    def is_sunk(self) -> bool:
        """Whether the greater part of the instructions is buried."""
        return self.buried_tokens * 2 > self.system_tokens


def sink(made: Composition, window: int | None, share: float = BURIED_SHARE) -> Sink:
    """Nothing is buried in a window of unknown size."""
    spoken = [one for one in made.everything if one.role == "system" and one.chat_tokens]
    after = [made.total - one.before - one.tokens for one in spoken]
    limit = float("inf") if window is None else window * share
    buried = sum(one.chat_tokens for one, distance in zip(spoken, after, strict=True) if distance > limit)
    return Sink(sum(one.chat_tokens for one in spoken), buried, min(after, default=None))


def distribution(made: Composition) -> tuple[Slice, ...]:
    """What the model reads in equal slices, from the first token to the last."""
    total = made.total
    bounds = [total * each // SLICES for each in range(SLICES + 1)]
    slices: tuple[Slice, ...] = tuple({"system": 0, "memory": 0, "tools": 0, "chat": 0} for _ in range(SLICES))
    at = current = 0
    for kind, tokens in _runs(made):
        end = at + tokens
        while at < end:
            while bounds[current + 1] <= at:
                current += 1
            step = min(end, bounds[current + 1])
            slices[current][kind] += step - at
            at = step
    return slices


def _runs(made: Composition) -> Iterator[tuple[Ingredient, int]]:
    yield "tools", made.definitions
    for one in made.everything:
        yield from _inside(one)


def _inside(one: Weighed) -> Sequence[tuple[Ingredient, int]]:
    """How the parts of a message lie in it does not show at this scale."""
    words: Ingredient = "system" if one.role == "system" else "chat"
    return ("memory", one.memory_tokens), ("tools", one.tools_tokens), (words, one.chat_tokens)
