"""A request in which outputs are shown as it was decided."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.features.sanitizer.output import Output
from kimi_proxy.features.sanitizer.plan import Plan


def apply(request: Request, plan: Plan, shown: Mapping[bytes, str], owed: Mapping[str, str]) -> Request:
    """`shown` has a text for the key of each output that was cut; all others stay as they came.

    `owed` has what is told beside the result of a call, by the call's name.
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
    """With what is told beside the results of calls, by their names, and nothing else changed."""
    texts = {spot: f"{request.part(*spot).text}\n\n{more}" for spot, more in _beside(request, owed)}
    return edit.with_texts(request, texts)


def call_names(request: Request) -> list[str]:
    """Of the calls whose results stand in a request."""
    return [name for _, name in _results(request)]


def call_name(request: Request, call_id: str) -> str:
    """Of a call in the answer to a request. Some models number their calls anew in every turn: an id is no name."""
    parts = (part for message in request.messages for part in message.parts)
    return _name(call_id, sum(1 for part in parts if part.kind == "tool_call" and part.call_id == call_id))


def _results(request: Request) -> Iterator[tuple[Place, str]]:
    """Where texts of results stand, and the names of their calls."""
    calls: Counter[str] = Counter()
    for at, message in enumerate(request.messages):
        for index, part in enumerate(message.parts):
            if part.kind == "tool_call":
                calls[part.call_id] += 1
            elif part.kind == "tool_result" and part.call_id and part.is_string:
                yield (at, index), _name(part.call_id, calls[part.call_id] - 1)


def _name(call_id: str, before: int) -> str:
    return f"{call_id}\0{before}" if before > 0 else call_id


def _beside(request: Request, owed: Mapping[str, str]) -> Iterator[tuple[Place, str]]:
    """Where what is owed is told: at the end of the last text of its result."""
    last = {name: spot for spot, name in _results(request) if name in owed} if owed else {}
    return ((spot, owed[name]) for name, spot in last.items())


def _spliced(text: str, outputs: list[Output], shown: Mapping[bytes, str]) -> str:
    pieces: list[str] = []
    at = 0
    for output in sorted(outputs, key=lambda output: output.start):
        pieces += (text[at : output.start], shown[output.key])
        at = output.end
    return "".join((*pieces, text[at:]))
