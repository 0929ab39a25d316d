"""A request in which outputs are shown as it was decided."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.features.sanitizer.output import Output
from kimi_proxy.features.sanitizer.plan import Plan


def apply(request: Request, plan: Plan, shown: Mapping[bytes, str], owed: Mapping[str, str]) -> Request:
    """`shown` has a text for the key of each output that was cut; all others stay as they came.

    `owed` has what is told beside the result of a call, by its id.
    """
    by_spot: dict[Place, list[Output]] = defaultdict(list)
    for output in plan.outputs:
        if output.key in shown:
            by_spot[output.spot].append(output)
    texts = {spot: _spliced(request.part(*spot).text, outputs, shown) for spot, outputs in by_spot.items()}
    for spot, more in _beside(request, owed):
        texts[spot] = f"{texts.get(spot, request.part(*spot).text)}\n\n{more}"
    return edit.with_texts(request, texts) if texts else request


def with_owed(request: Request, owed: Mapping[str, str]) -> Request:
    """With what is told beside the results of calls, by their ids, and nothing else changed."""
    texts = {spot: f"{request.part(*spot).text}\n\n{more}" for spot, more in _beside(request, owed)}
    return edit.with_texts(request, texts)


def call_ids(request: Request) -> list[str]:
    """Of the calls whose results stand in a request."""
    parts = (part for message in request.messages for part in message.parts)
    return [part.call_id for part in parts if part.kind == "tool_result" and part.call_id]


def _beside(request: Request, owed: Mapping[str, str]) -> Iterator[tuple[Place, str]]:
    """Where what is owed is told: at the end of the last text of its result."""
    last: dict[str, Place] = {}
    for at, message in enumerate(request.messages if owed else ()):
        for index, part in enumerate(message.parts):
            if part.kind == "tool_result" and part.call_id in owed and part.is_string:
                last[part.call_id] = (at, index)
    return ((spot, owed[call_id]) for call_id, spot in last.items())


def _spliced(text: str, outputs: list[Output], shown: Mapping[bytes, str]) -> str:
    pieces: list[str] = []
    at = 0
    for output in sorted(outputs, key=lambda output: output.start):
        pieces += (text[at : output.start], shown[output.key])
        at = output.end
    return "".join((*pieces, text[at:]))
