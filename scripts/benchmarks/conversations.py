"""Bodies that nobody has sent before: new conversations, and conversations that go on, by size and by length."""

import itertools
import json
import random
from collections.abc import Callable, Iterator

WORDS = """
    the a file test line error value request answer returns function because before after every branch table
    index column reader writer socket stream token window cache result model client server provider session
""".split()
# (name, messages before the newest, characters of each), and how often each is asked
SHAPES = {
    "100 KB": (1, 100_000, 60),
    "1 MB": (1, 1_000_000, 30),
    "10 messages of 1 KB": (10, 1_000, 60),
    "100 messages of 1 KB": (100, 1_000, 60),
    "1,000 messages of 1 KB": (1_000, 1_000, 30),
    "1,000 messages of 30 bytes": (1_000, 30, 30),
}
ROLES = ("user", "assistant")

_numbers = itertools.count()


def text(size: int) -> str:
    """Words in an order that no other text has."""
    draw = random.Random(next(_numbers))
    words = draw.choices(WORDS, k=size // 7 + 20)
    return f"{draw.random()} {' '.join(words)}"[:size]


def messages(count: int, size: int) -> list[dict[str, str]]:
    return [{"role": ROLES[place % 2], "content": text(size)} for place in range(count)]


def encode(conversation: list[dict[str, str]]) -> bytes:
    return json.dumps({"model": "m", "messages": conversation}).encode()


def fresh(shape: str) -> Callable[[], bytes]:
    """Make the first request that we see of a conversation."""
    count, size, _ = SHAPES[shape]
    return lambda: encode([*messages(count, size), {"role": "user", "content": text(30)}])


def going_on(shape: str) -> Callable[[], bytes]:
    """Make the next request of one conversation: an answer and a question longer each time."""
    count, size, _ = SHAPES[shape]
    grown: Iterator[bytes] = _grow([*messages(count, size), {"role": "user", "content": text(30)}])
    return grown.__next__


def _grow(conversation: list[dict[str, str]]) -> Iterator[bytes]:
    while True:
        yield encode(conversation)
        conversation += [{"role": "assistant", "content": text(200)}, {"role": "user", "content": text(200)}]
