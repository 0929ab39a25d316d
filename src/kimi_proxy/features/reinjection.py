"""The system's words once more at the end of the prompt, when what was said since has buried them."""

from dataclasses import dataclass, replace

from kimi_proxy.core.chat import Request
from kimi_proxy.core.chat.adding import BETWEEN, with_reminder
from kimi_proxy.core.reasons import Reason
from kimi_proxy.features.health import Sink
from kimi_proxy.features.memory import segments
from kimi_proxy.features.pipeline import Draft, Note

HEADING = "[The instructions from the beginning of this conversation still apply. kimi-proxy repeats them:]"

EVENT = "instructions_reinjected"
TOO_LONG: Reason = "instructions_too_long"
NO_PLACE: Reason = "no_place_for_instructions"


@dataclass(frozen=True, slots=True)
class Reminder:
    text: str
    tokens: int
    sink: Sink


def instructions(request: Request) -> str:
    """What the system says, without memory: that is no instruction, and a copy of it would be counted as more of it."""
    texts = (_without_memory(part.text).strip() for part in request.system if part.kind == "text")
    return BETWEEN.join(text for text in texts if text)


def is_reminded(request: Request) -> bool:
    """Whether somebody before us has repeated the instructions."""
    return any(HEADING in part.text for message in request.messages[-1:] for part in message.parts)


def reinjected(draft: Draft, reminder: Reminder) -> Draft:
    """Only ever at the end: the next request comes without it, and all before it is what the provider's cache knows."""
    request = with_reminder(draft.request, reminder.text)
    if request is None:
        return replace(draft, reasons=(*draft.reasons, NO_PLACE))
    sink = reminder.sink
    told = {"tokens": reminder.tokens, "buried_tokens": sink.buried_tokens, "distance": sink.distance}
    return replace(draft, request=request, notes=(*draft.notes, Note(EVENT, told)))


def _without_memory(text: str) -> str:
    kept, at = [], 0
    for segment in segments(text):
        kept.append(text[at : segment.start])
        at = segment.end
    return "".join((*kept, text[at:]))
