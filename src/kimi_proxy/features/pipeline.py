"""The stages that a chat request passes through, and the one place where a fault of ours lets it through unchanged."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kimi_proxy.core.chat import Request
from kimi_proxy.core.fault import place
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.models import Target
from kimi_proxy.features.sessions import Session

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """An original that has to be on disk before the request leaves."""

    id: str
    text: str
    about: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """Something that a stage did, for whoever watches."""

    event: str
    fields: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """A request on its way, and what the stages say about it."""

    request: Request
    target: Target
    session: Session
    kept: tuple[Kept, ...] = ()
    notes: tuple[Note, ...] = ()
    reasons: tuple[str, ...] = ()  # why a stage that could have done something did not
    hides_usage: bool = False  # we asked for what the client did not: it gets none of it
    own_tool: str = ""  # a tool of ours that the model may call; the client does not know it


Stage = Callable[[Draft], Draft]
OnFault = Callable[[str, Exception], None]


def run_stages(draft: Draft, stages: Sequence[Stage], on_fault: OnFault) -> Draft:
    """Each stage in turn. One that fails has done nothing, and the request goes on."""
    for stage in stages:
        try:
            draft = stage(draft)
        except Exception as e:  # noqa: BLE001 - whatever broke, the user's request leaves
            log.warning("stage failed", extra={"stage": name_of(stage), "what": place(e)})
            on_fault(name_of(stage), e)
            draft = replace(draft, reasons=(*draft.reasons, f"{name_of(stage)}_failed"))
    return draft


def name_of(stage: Stage) -> str:
    return str(getattr(stage, "__name__", type(stage).__name__))
