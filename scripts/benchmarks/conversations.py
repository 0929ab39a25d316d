"""Bodies that nobody has sent before: new conversations, and conversations that go on, by size and by length."""

import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

WORDS = """
    the a file test line error value request answer returns function because before after every branch table
    index column reader writer socket stream token window cache result model client server provider session
""".split()
ROLES = ("user", "assistant")
TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Shape:
    """What a conversation consists of when it is first measured."""

    messages: int
    chars: int  # of each
    times: int  # that it is asked
    of_agent: bool = False  # every second message is a tool result


SHAPES = {
    "100 KB": Shape(1, 100_000, 60),
    "1 MB": Shape(1, 1_000_000, 30),
    "10 messages of 1 KB": Shape(10, 1_000, 60),
    "100 messages of 1 KB": Shape(100, 1_000, 60),
    "1,000 messages of 1 KB": Shape(1_000, 1_000, 30),
    "1,000 messages of 30 bytes": Shape(1_000, 30, 30),
    "1,000 messages, half of them results of 1 KB": Shape(1_000, 1_000, 30, of_agent=True),
}


def text(size: int) -> str:
    """Words in an order that no other text has."""
    draw = random.Random(next(_numbers))
    words = draw.choices(WORDS, k=size // 4 + 20)
    return f"{draw.random()} {' '.join(words)}"[:size]


def fresh(shape: Shape) -> Callable[[], bytes]:
    """Make the first request that anybody sees of a conversation."""
    return lambda: next(_grow(shape))


def going_on(shape: Shape) -> Callable[[], bytes]:
    """Make the next request of one conversation: an answer and what follows it longer each time."""
    return _grow(shape).__next__


def _grow(shape: Shape) -> Iterator[bytes]:
    more = _agent_turns(shape) if shape.of_agent else _turns(shape)
    conversation = [{"role": "user", "content": text(400)}] if shape.of_agent else []
    while len(conversation) < shape.messages:
        conversation += next(more)
    tools = {"tools": [TOOL]} if shape.of_agent else {}
    while True:
        yield json.dumps({"model": "m", "messages": conversation, **tools}).encode()
        conversation += next(more)


def _turns(shape: Shape) -> Iterator[list[dict[str, object]]]:
    yield [{"role": ROLES[place % 2], "content": text(shape.chars)} for place in range(shape.messages)]
    while True:
        yield [{"role": "assistant", "content": text(200)}, {"role": "user", "content": text(200)}]


def _agent_turns(shape: Shape) -> Iterator[list[dict[str, object]]]:
    for number in itertools.count():
        call = {"name": "bash", "arguments": json.dumps({"command": f"cat {text(20)}"})}
        made = {"id": f"call_{number}", "type": "function", "function": call}
        yield [
            {"role": "assistant", "content": None, "tool_calls": [made]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": text(shape.chars)},
        ]
