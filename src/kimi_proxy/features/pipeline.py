"""What a chat request passes through, and the one place where a fault of ours lets it through unchanged."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from kimi_proxy.core.chat import Request, edit
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.core.errors import AnyReason, OtherReason, location
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.models import Target
from kimi_proxy.features.sessions import Session


@dataclass(frozen=True, slots=True)
class ActiveCompression:
    """What a session's history was replaced by; the same bytes in every request from then on."""

    id: str
    cut: int  # messages before it gave way, without those of the system
    kept: tuple[int, ...]  # those of them that stayed
    fingerprint: bytes
    message: str


Header = tuple[bytes, bytes]

log = logging.getLogger(__name__)


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
    came: Request | None = field(default=None, repr=False)  # as the client sent it; None if that is `request`
    headers: tuple[Header, ...] = field(default=(), repr=False)  # the client's: secrets are among them
    said: tuple[Header, ...] = ()  # what the answer tells of us, beside the provider's headers
    notes: tuple[Note, ...] = ()
    reasons: tuple[AnyReason, ...] = ()  # why a stage that could have done something did not
    hides_usage: bool = False  # we asked for what the client did not: it gets none of it
    cut: ActiveCompression | None = None  # what was done about old messages
    uncut: "Draft | None" = field(default=None, repr=False)  # before old messages gave way; None if none did
    own_tool: str = ""  # a tool of ours that the model may call; the client does not know it


Stage = Callable[[Draft], Draft]
OnFault = Callable[[str, Exception], None]


def unchanged(draft: Draft) -> Draft:
    """The stage of a step that has nothing to do."""
    return draft


class Step(Protocol):
    """Gives a stage in which everything is settled that the outside has a say in; what it cuts is on disk by then."""

    async def stage(self, draft: Draft) -> Stage: ...


async def run_steps(draft: Draft, steps: Sequence[Step], on_fault: OnFault) -> Draft:
    """Each step in turn sees what those before it made of the request."""
    for step in steps:
        try:
            draft = (await step.stage(draft))(draft)
        except Exception as e:  # noqa: BLE001 - whatever broke, the user's request leaves
            draft = _untouched(draft, type(step).__name__.lower(), e, on_fault)
    return draft


def run_stages(draft: Draft, stages: Sequence[Stage], on_fault: OnFault) -> Draft:
    for stage in stages:
        try:
            draft = stage(draft)
        except Exception as e:  # noqa: BLE001 - whatever broke, the user's request leaves
            draft = _untouched(draft, name_of(stage), e, on_fault)
    return draft


def name_of(stage: Stage) -> str:
    return str(getattr(stage, "__name__", type(stage).__name__))


def _untouched(draft: Draft, name: str, error: Exception, on_fault: OnFault) -> Draft:
    """What fails has done nothing, and the request goes on."""
    log.warning("stage failed", extra={"stage": name, "what": location(error)})
    on_fault(name, error)
    return replace(draft, reasons=(*draft.reasons, OtherReason(f"{name}_failed")))


def name_model(draft: Draft) -> Draft:
    """Call the model what its provider calls it."""
    request = edit.with_model(draft.request, draft.target.model)
    return draft if request is draft.request else replace(draft, request=request)


def ask_usage(providers: Mapping[str, Provider]) -> Stage:
    def ask_usage(draft: Draft) -> Draft:
        """Let the provider count, and keep the count from a client that did not ask for it."""
        if not providers[draft.target.provider].include_usage:
            return draft
        request = edit.with_usage(draft.request)
        return draft if request is draft.request else replace(draft, request=request, hides_usage=True)

    return ask_usage
