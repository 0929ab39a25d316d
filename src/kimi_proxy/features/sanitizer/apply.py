"""A request in which outputs are shown as it was decided."""

from collections import defaultdict
from collections.abc import Mapping

from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.features.sanitizer.output import Output
from kimi_proxy.features.sanitizer.plan import Plan


def apply(request: Request, plan: Plan, shown: Mapping[bytes, str]) -> Request:
    """`shown` has a text for the key of each output that was cut; all others stay as they came."""
    by_spot: dict[Place, list[Output]] = defaultdict(list)
    for output in plan.outputs:
        if output.key in shown:
            by_spot[output.spot].append(output)
    texts = {spot: _spliced(request.part(*spot).text, outputs, shown) for spot, outputs in by_spot.items()}
    return edit.with_texts(request, texts) if texts else request


def _spliced(text: str, outputs: list[Output], shown: Mapping[bytes, str]) -> str:
    pieces: list[str] = []
    at = 0
    for output in sorted(outputs, key=lambda output: output.start):
        pieces += (text[at : output.start], shown[output.key])
        at = output.end
    return "".join((*pieces, text[at:]))
