"""The messages that gave way to a summary: the client still sends them, the model reads them no more."""

from collections.abc import Mapping

from kimi_proxy.core.chat import Message, Request
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.composition import Composition
from kimi_proxy.features.compression.decided import Compression
from kimi_proxy.features.compression.history import History
from kimi_proxy.features.context_map import PREVIEW_CHARS, words


def gave_way(came: Request, cut: Compression | None) -> Mapping[int, Message]:
    """By their index in the request as it came."""
    if cut is None:
        return {}
    history = History(came)
    return {history.at[place]: history.messages[place] for place in range(cut.cut) if place not in cut.kept}


def told(index: int, message: Message, weighed: Composition) -> JsonObject:
    """`weighed` is the request as it came."""
    weight = weighed.messages[index]
    return {
        "index": index,
        "role": message.role,
        "kind": weight.kind,
        "tokens": weight.tokens,
        "preview": words(message)[:PREVIEW_CHARS],
    }
