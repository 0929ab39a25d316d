"""What is noted of a request's context: its four ingredients, and for the newest of a session how they lie."""

from dataclasses import dataclass

from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.composition import Composition
from kimi_proxy.features.health import BURIED_SHARE, Sink, Slice, distribution, sink
from kimi_proxy.features.memory import Found


@dataclass(frozen=True, slots=True)
class Layout:
    found: tuple[Found, ...]  # the memory in it, by kind
    slices: tuple[Slice, ...]
    sink: Sink
    is_reminded: bool  # its instructions were repeated at the end


@dataclass(frozen=True, slots=True)
class Context:
    """In tokens; together they are what was estimated."""

    system: int
    memory: int
    tools: int
    chat: int
    layout: Layout | None = None  # None for what is read from the disk

    @property
    def memory_ratio(self) -> float:
        total = self.system + self.memory + self.tools + self.chat
        return round(self.memory / total, 4) if total else 0.0

    @property
    def is_sunk(self) -> bool:
        layout = self.layout
        return layout is not None and layout.sink.is_sunk and not layout.is_reminded


def context_of(made: Composition, window: int | None, is_reminded: bool) -> Context:
    layout = Layout(made.found, distribution(made), sink(made, window), is_reminded)
    return Context(made.system, made.memory, made.tools, made.chat, layout)


def memory_told(context: Context) -> JsonObject:
    """The memory of a session's newest request, in a few lines."""
    found = context.layout.found if context.layout else ()
    kinds: list[JsonValue] = [
        {"kind": one.kind, "segments": one.count, "tokens": one.tokens, "preview": one.preview} for one in found
    ]
    return {"memory_tokens": context.memory, "memory_ratio": context.memory_ratio, "kinds": kinds}


def layout_told(layout: Layout) -> JsonObject:
    found = layout.sink
    slices: list[JsonValue] = [dict(each.items()) for each in layout.slices]
    return {
        "distribution": slices,
        "attention_sink": {
            "is_sunk": found.is_sunk and not layout.is_reminded,
            "system_tokens": found.system_tokens,
            "buried_tokens": found.buried_tokens,
            "distance": found.distance,
            "threshold": BURIED_SHARE,
            "reinjected": layout.is_reminded,
        },
    }
