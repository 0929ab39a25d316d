"""The stages of a chat request, and the one place where a failure of ours lets a request pass unchanged."""

import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Generic, Protocol, TypeVar

from kimi_proxy.core.aside import PARSED_BYTES, aside
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.chat import Request, Wire, edit
from kimi_proxy.core.chat.wires.calls import UnwrappedCall
from kimi_proxy.core.config.providers import Provider, maker_at
from kimi_proxy.core.errors import AnyReason, OtherReason, location
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.timing import Timings
from kimi_proxy.features.chat.conversations import Conversation, name_conversation
from kimi_proxy.features.chat.prompt_cache import ATTRIBUTION, CacheMoment
from kimi_proxy.features.chat.safety_checks import SAFETY_CHECK, is_safety_check
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target

Header = tuple[bytes, bytes]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ActiveCompression:
    """The replacement of a session's history, byte for byte the same in every request."""

    id: str
    cut: int  # messages before this place are summarized; the system's are not counted
    kept: tuple[int, ...]  # the places before `cut` that stay
    fingerprint: bytes
    message: str


@dataclass(frozen=True, slots=True)
class Note:
    """An event that a stage has to report, published once the request has left."""

    event: str
    fields: Mapping[str, object] = field(default_factory=dict)


class ProviderSearch(Protocol):
    """A search for tools that the provider runs, and that it may refuse."""

    def note_answer(self, draft: "Draft") -> None: ...

    def has_answered(self, draft: "Draft") -> bool:
        """Return whether it has run in this conversation while its prompt cache was kept."""

    def note_refusal(self, draft: "Draft") -> None:
        """Note that the provider refused a request with it, and answered the same without."""

    def without(self, draft: "Draft") -> "Draft":
        """Return the draft with a search of our own in its place."""


class OwnTools(Protocol):
    """Tools of ours that stand for those of the client's that a request leaves out."""

    @property
    def own_tools(self) -> tuple[str, ...]:
        """Their names."""

    @property
    def wrapper(self) -> str:
        """The one of them that calls tools of the client's; "" if the provider loads those itself."""

    @property
    def search(self) -> ProviderSearch | None: ...

    def unwrap(self, arguments: str) -> UnwrappedCall | None:
        """Return the call of the client's tool that a call of `wrapper` stands for, if it names one."""

    def answer(self, tool: str, arguments: str) -> JsonValue:
        """Return what the model reads for a call of one of them: a text, or what the provider is to load."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A request in progress, and the remarks of its stages."""

    request: Request
    target: Target
    session: Session
    caller: Caller  # whose request it is
    received: Request | None = field(default=None, repr=False)  # as the client sent it; None if that is `request`
    headers: tuple[Header, ...] = field(default=(), repr=False)  # the client's: secrets are among them
    answer_headers: tuple[Header, ...] = ()  # response headers in addition to the provider's
    notes: tuple[Note, ...] = ()
    reasons: tuple[AnyReason, ...] = ()  # why a stage that could have done something did not
    hides_usage: bool = False  # we asked for a count that the client did not ask for: it gets none of it
    compression: ActiveCompression | None = None  # that was applied to old messages
    uncompressed: "Draft | None" = field(default=None, repr=False)  # before that; None if nothing was
    known_as: Conversation | None = field(default=None, repr=False)  # None: not looked up yet
    is_followed: bool = False  # this process relayed the conversation so far: of new results nothing is on disk
    upstream_wire: Wire | None = None  # the API in which it reaches its provider; None: the client's
    own_tool: str = ""  # a tool of ours that the model may call; the client does not know it
    deferred: "OwnTools | None" = None  # tools of the client's that are left out, and found when they are needed
    is_marked: bool = False  # the marks for the provider's prompt cache are ours
    cache: CacheMoment | None = field(default=None, repr=False, compare=False)  # the provider's prompt cache
    clears_thinking: bool = False  # the provider drops old thinking because we asked for it
    is_attested: bool = False  # the client signed these bytes: only earlier changes may be repeated
    is_observed: bool = False  # the same holds, because it is only observed
    would: "Draft | None" = field(default=None, repr=False, compare=False)  # as an observed one would have left
    id: str = ""  # of the request in the account
    timings: Timings | None = field(default=None, repr=False, compare=False)  # where a collector wants them

    @property
    def conversation(self) -> Conversation:
        """Return the conversation that the request belongs to."""
        return self.known_as or name_conversation(self.session.id, self.received or self.request)

    @property
    def own_tools(self) -> tuple[str, ...]:
        """Return the names of all tools of ours that the model may call; the client does not know them."""
        return (*((self.own_tool,) if self.own_tool else ()), *(self.deferred.own_tools if self.deferred else ()))

    @property
    def size(self) -> int:
        """Return the sizes of its bodies in bytes, as received and as sent."""
        received = self.received or self.request
        body = self.request.body
        return len(body) + (0 if received.body is body else len(received.body))


Plan = TypeVar("Plan")
Stage = Callable[[Draft], Awaitable[Draft]]  # originals of its cuts are on disk when it returns
OnFault = Callable[[str, Exception], None]


class ChangingStage(ABC, Generic[Plan]):
    """A stage that changes bytes, in three steps: a fault in any of them undoes this stage and no other."""

    @abstractmethod
    async def decide(self, draft: Draft) -> Plan | None:
        """Return what the stage would do to a request; None for nothing. Nothing is stored yet."""

    async def commit(self, draft: Draft, plan: Plan) -> Plan:
        """Store the originals and the decision, and return the one that won: another server may have been first."""
        return plan

    @abstractmethod
    def render(self, draft: Draft, plan: Plan) -> Draft:
        """Return the draft as the winning plan says: no clock, no store."""

    async def change(self, draft: Draft) -> Draft:
        plan = await self.decide(draft)
        if plan is None:
            return draft
        won = await self.commit(draft, plan)
        return await aside(len(draft.request.body) <= PARSED_BYTES, self.render, draft, won)


async def run_stages(draft: Draft, stages: Sequence[Stage], on_fault: OnFault) -> Draft:
    """Return the result of all stages on `draft`; a stage that fails changes nothing."""
    for stage in stages:
        try:
            changed = await stage(draft)
            if changed.request is not draft.request and len(changed.request.body) > PARSED_BYTES:
                await aside(False, changed.request.read_whole)
            draft = changed
        except Exception as e:  # noqa: BLE001 - whatever broke, the user's request is sent
            name = name_of(stage)
            log.warning("stage failed", extra={"stage": name, "what": location(e)})
            on_fault(name, e)
            draft = replace(draft, reasons=(*draft.reasons, OtherReason(f"{name}_failed")))
    return draft


def name_of(stage: Stage) -> str:
    """Return the name of a function; of a method, that of the class it belongs to."""
    owner = getattr(stage, "__self__", None)
    return str(getattr(stage, "__name__", "stage")) if owner is None else type(owner).__name__.lower()


async def name_model(draft: Draft) -> Draft:
    """Call the model what its provider calls it."""
    request = edit.with_model(draft.request, draft.target.model)
    return draft if request is draft.request else replace(draft, request=request)


async def name_safety_check(draft: Draft) -> Draft:
    """Count a safety check of Claude Code's auto mode as one."""
    return replace(draft, reasons=(*draft.reasons, SAFETY_CHECK)) if is_safety_check(draft.request) else draft


# The parts of Claude Code's attribution that stay constant; all others change with each request or turn.
_STEADY = re.compile(r"cc_(?:version|entrypoint|is_subagent)=")
_HASH = re.compile(r"cch=(\w*)")


def is_attested(request: Request) -> bool:
    """Return whether the client put a hash of the request's body into its first text, as Claude Code does."""
    first = request.system[0].text if request.system else ""
    return first.startswith(ATTRIBUTION) and any(_HASH.fullmatch(field.strip()) for field in first.split(";"))


def pin_attribution(providers: Mapping[str, Provider]) -> Stage:
    async def pin_attribution(draft: Draft) -> Draft:
        """Keep the first text of a conversation the same, where it is not Anthropic who reads it.

        A prompt cache ends at the first byte that differs: llama.cpp, vLLM and Ollama would read everything again in
        every turn. Anthropic itself excludes the text from its cache.
        """
        if ATTRIBUTION.encode() not in draft.request.body:  # to look for it in the messages would parse them
            return draft
        name = draft.target.provider
        first = draft.request.system[0].text if draft.request.system else ""
        if not first.startswith(ATTRIBUTION) or maker_at(name, providers[name]) == "anthropic":
            return draft
        request = edit.with_system_part(draft.request, 0, _pin_attribution(first, draft.session.id))
        return draft if request is draft.request else replace(draft, request=request)

    return pin_attribution


def _pin_attribution(attribution: str, session: str) -> str:
    fields = [field.strip() for field in attribution.removeprefix(ATTRIBUTION).split(";")]
    steady = [field for field in fields if _STEADY.match(field)]
    if found := next((match for field in fields if (match := _HASH.fullmatch(field))), None):
        digest = sha256(session.encode("utf-8", "surrogatepass")).hexdigest()
        steady.append(f"cch={digest[: len(found[1])]}")
    return f"{ATTRIBUTION} " + "".join(f"{field}; " for field in steady).rstrip()


def ask_usage(providers: Mapping[str, Provider]) -> Stage:
    async def ask_usage(draft: Draft) -> Draft:
        """Let the provider count tokens, and keep the count from a client that did not ask for it."""
        if not providers[draft.target.provider].include_usage:
            return draft
        request = edit.with_usage(draft.request)
        return draft if request is draft.request else replace(draft, request=request, hides_usage=True)

    return ask_usage
