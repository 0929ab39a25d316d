"""The life of a chat request, from the client's bytes to the provider's and back."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import ParamSpec, TypeVar

from kimi_proxy.core import chat, json, tokens
from kimi_proxy.core.aside import PARSED_BYTES
from kimi_proxy.core.chat import Wire, edit
from kimi_proxy.core.chat.messages import RememberedMessages
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import is_local
from kimi_proxy.core.errors import (
    KimiProxyError,
    NoProvider,
    location,
)
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.markers import new_id
from kimi_proxy.core.timing import begin_timings
from kimi_proxy.features.chat.context import tokens_of
from kimi_proxy.features.chat.pipeline import (
    Draft,
    Stage,
    ask_usage,
    is_attested,
    name_model,
    name_safety_check,
    pin_attribution,
    run_stages,
)
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.proxy.headers import Header, UpstreamRequest, credential, is_form
from kimi_proxy.services.chat.admission import ADMITTED, BudgetGate, ObjectGate, charge_of
from kimi_proxy.services.chat.long_requests import LongRequests
from kimi_proxy.services.chat.model_lists import MODELS_PATH, ModelLists
from kimi_proxy.services.chat.observation import Observation
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.providers import RateLimiter
from kimi_proxy.services.chat.recall import OnRecall, Recall
from kimi_proxy.services.chat.relay import Answer, Exchange, ProviderClient, Relay, ReplyStream
from kimi_proxy.services.chat.requests import ChatRequest, LocalSessions, SessionFinder
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.remembered import Memory, Remembered, stays

P = ParamSpec("P")
Value = TypeVar("Value")

log = logging.getLogger(__name__)

OVERHEAD = b"x-kimi-proxy-overhead-ms"  # until a request was ready to be sent to its provider

MAX_ATTESTED = 1000
ATTESTED = "docs/llm-proxy.md, What Claude Code signs; [sanitizer] change_attested"


class Chat:
    """Reads a request, lets the stages change it, asks the provider of its model, and relays the answer."""

    def __init__(
        self,
        config: Config,
        upstreams: ProviderClient | None,
        metrics: Metrics,
        stages: Sequence[Stage] = (),  # all that may change a request before it is sent, in this order
        observers: Sequence[ChatObserver] = (),
        recall: Recall | None = None,
        rate_limiter: RateLimiter | None = None,
        models: Models | None = None,
        now: Callable[[], float] = time.monotonic,
        sessions: SessionFinder | None = None,
        budgets: BudgetGate | None = None,  # of a team
        shared_keys: ObjectGate | None = None,  # of a team, whose people share a provider's key
        repeating: Sequence[Stage] = (),  # those of the stages for a request that the client signed
        observation: Observation | None = None,
        memory: Memory | None = None,
        remembered: RememberedMessages | None = None,  # messages of earlier requests, which begin the next ones
    ) -> None:
        self.models = models or Models.of(config)
        last = name_model, name_safety_check, pin_attribution(config.providers), ask_usage(config.providers)
        self.stages = (*stages, *last)
        self.rate_limiter = rate_limiter or RateLimiter(config.providers, now)
        self._upstreams = upstreams
        self._model_lists = ModelLists(self.models, upstreams)
        self._token = config.token.get_secret_value() if config.token else None
        self._metrics = metrics
        self._observers = observers
        self._is_timed = any(observer.wants_timings for observer in observers)
        self._recall = recall
        self._now = now
        self._sessions = sessions or LocalSessions()
        self._budgets = budgets
        self._shared_keys = shared_keys
        self._repeating = (*repeating, name_model, name_safety_check)
        self._observation = observation
        self._long_requests = LongRequests()
        self._remembered = remembered
        self._providers = config.providers
        self._changes_attested = config.sanitizer.change_attested
        self._attested: Remembered[str, bool] = Remembered(  # sessions that were logged
            memory or Memory(), "signed sessions", size=MAX_ATTESTED, forget=stays
        )

    @asynccontextmanager
    async def answer(self, incoming: ChatRequest) -> AsyncIterator[Answer]:
        """Ask the provider of the requested model; the answer stays open until the block ends."""
        began = self._now()
        async with self._long_requests.turn(incoming.caller, len(incoming.body)):
            received, outgoing = await self._prepare(incoming, began)
        # If no stage had anything to do, these are the caller's own bytes.
        question = _upstream_request(incoming, outgoing.request.body)
        async with self._relay(outgoing, question, self._observers, received) as answer:
            yield answer

    async def _prepare(self, incoming: ChatRequest, began: float) -> tuple[Draft, Draft]:
        """Return a request that came at a time as it was received, and as it is to be sent."""
        timings = begin_timings() if self._is_timed else None
        request = await _parse(incoming, self._remembered)
        target = self.models.target(
            request.model, incoming.wire, self.credential(incoming), translate=True, prefer=incoming.cloud
        )
        await self._refuse_kept_objects(target.provider, incoming)
        session = await self._session(request, incoming, target)
        spoken = self.models.upstream_wire(target, incoming.wire)
        received = Draft(request, target, session, incoming.caller, request, incoming.headers, upstream_wire=spoken)
        received = replace(received, is_attested=self._is_attested(received), id=new_id("req"))
        received = replace(received, timings=timings) if timings else received
        # A stage commits the originals of its cuts before it returns, so every marker can be restored.
        outgoing = await self._run_stages(received)
        if received.is_attested and "attested" not in outgoing.reasons:
            outgoing = replace(outgoing, reasons=(*outgoing.reasons, "attested"))
        if incoming.shows_usage:
            outgoing = replace(outgoing, hides_usage=False)
        took_s = self._now() - began
        self._metrics.chat_added_seconds.observe(took_s)
        if not request.is_stream:
            overhead = (OVERHEAD, f"{1000 * took_s:.1f}".encode())
            outgoing = replace(outgoing, answer_headers=(*outgoing.answer_headers, overhead))
        return received, outgoing

    @asynccontextmanager
    async def count_tokens(self, incoming: ChatRequest) -> AsyncIterator[Answer]:
        """Let an Anthropic provider count tokens; count them here for the models of others."""
        request = await _parse(incoming, self._remembered)
        try:
            target = self.models.target(request.model, incoming.wire, self.credential(incoming), prefer=incoming.cloud)
        except NoProvider:
            json.refuse_many_values(request.body)
            counted = await asyncio.to_thread(tokens_of, request, tokens.count)
            yield _json(incoming.wire.format.token_count(counted))
            return
        await self._refuse_kept_objects(target.provider, incoming)
        draft = Draft(edit.with_model(request, target.model), target, Session(""), incoming.caller)
        path = incoming.wire.format.count_paths[0]
        async with self._relay(draft, _upstream_request(incoming, draft.request.body, path)) as answer:
            yield answer

    @asynccontextmanager
    async def list_models(self, incoming: ChatRequest) -> AsyncIterator[Answer]:
        """List the models of the settings; where they name none, those that the providers list.

        Codex with the login of a plan reads its own catalogue there.
        """
        if self.models.is_plan_login(self.credential(incoming)):
            async with self.relay(replace(incoming, wire=Wire.RESPONSES), "GET", MODELS_PATH) as answer:
                yield answer
            return
        offered = [(key, model.provider) for key, model in self.models.offered_models()]
        if offered:
            yield _json(incoming.wire.format.model_list(offered))
        else:
            yield _json(await self._model_lists.read(incoming, self.credential(incoming)))

    @asynccontextmanager
    async def relay(self, incoming: ChatRequest, method: str, path: str) -> AsyncIterator[Answer]:
        """Pass on a request of another kind, such as one for embeddings: only the name of its model may change."""
        request = chat.Request(incoming.wire, incoming.body)
        is_file = is_form(incoming.headers)
        model = model_in_form(incoming.body) if is_file else request.model if incoming.body else ""
        target = self.models.target(model, incoming.wire, self.credential(incoming), prefer=incoming.cloud)
        await self._refuse_kept_objects(target.provider, incoming, path, method)
        # A provider reads a whole conversation to compact it: the cost belongs to its session.
        is_compaction = bool(model) and path == incoming.wire.format.compaction
        session = await self._session(request, incoming, target) if is_compaction else Session("")
        asked = edit.with_model(request, target.model) if model and not is_file else request
        draft = Draft(asked, target, session, incoming.caller, id=new_id("req"))
        observers = self._observers if is_compaction else ()
        question = _upstream_request(incoming, draft.request.body, path, method)
        async with self._relay(draft, question, observers, is_relayed=not is_compaction) as answer:
            yield answer

    @asynccontextmanager
    async def _relay(
        self,
        draft: Draft,
        question: UpstreamRequest,
        observers: Sequence[ChatObserver] = (),
        received: Draft | None = None,  # before the stages changed it
        is_relayed: bool = False,  # not a chat request, but it may cost money
    ) -> AsyncIterator[Answer]:
        relay = Relay(draft, self._now)
        charge = charge_of(question)
        admission = ADMITTED
        self._metrics.streams_in_flight.inc()
        try:
            for observer in observers:
                self._call(observer.on_start, received or draft, draft)
            question = self._with_headers(question, draft, observers)
            await self.rate_limiter.take(draft.target.provider)
            admission = await self._budgets.admit(draft, charge) if self._budgets else ADMITTED
            async with self._reply(draft, question, relay.on_recall) as reply:
                answer = await relay.answer(reply)
                ours = (*draft.answer_headers, *admission.headers)
                yield replace(answer, headers=(*answer.headers, *ours)) if ours else answer
        except KimiProxyError as e:
            relay.on_failure(e)
            raise
        finally:
            self._metrics.streams_in_flight.dec()
            # A client that hangs up cancels this task here; its request must be counted all the same.
            exchange = replace(relay.exchange(), reserved_usd=admission.reserved_usd)
            self._call(self._record, exchange)
            self._call(admission.settle, exchange)
            for observer in observers:
                self._call(observer.on_end, exchange)
            for observer in self._observers if is_relayed and charge == "counted" else ():
                self._call(observer.on_relayed, exchange)

    async def _refuse_kept_objects(
        self, provider: str, incoming: ChatRequest, path: str = "", method: str = "POST"
    ) -> None:
        """Raise AccessDenied if a request may name what others of the team stored with the same key."""
        key = self.credential(incoming)
        is_shared = self.models.sends_our_key(provider, key) or is_local(self._providers[provider])
        if self._shared_keys is not None and (is_shared or not key):
            await self._shared_keys.check(provider, _upstream_request(incoming, incoming.body, path, method))

    def _with_headers(
        self, question: UpstreamRequest, outgoing: Draft, observers: Sequence[ChatObserver]
    ) -> UpstreamRequest:
        """Return the question with the headers that observers give it."""
        found: list[Header] = []
        for observer in observers:
            found += self._call(observer.headers_for, outgoing) or ()
        if not found:
            return question
        names = {name for name, _ in found}
        kept = tuple(header for header in question.headers if header[0] not in names)
        return replace(question, headers=(*kept, *found))

    async def _run_stages(self, received: Draft) -> Draft:
        """Run the stages; an observed request is returned unchanged."""
        if self._observation is None or received.request.is_crowded or not await self._observation.covers(received):
            return await run_stages(received, self._stages_for(received), self._metrics.count_fault)
        outgoing = await run_stages(replace(received, is_observed=True), self._repeating, self._metrics.count_fault)
        if "observing" not in outgoing.reasons:
            outgoing = replace(outgoing, reasons=(*outgoing.reasons, "observing"))
        return await self._observation.decide(received, outgoing)

    def _stages_for(self, received: Draft) -> Sequence[Stage]:
        """Return the stages for a request; one with too many values to be parsed only gets its model renamed."""
        if received.is_attested and not received.request.is_crowded:
            return self._repeating
        if not received.request.is_crowded:
            return self.stages
        self._metrics.chat_faults.labels("parse", "too_many_values").inc()
        return (name_model,)

    def _is_attested(self, received: Draft) -> bool:
        """Return whether a request to Anthropic is signed, by a plan or an API key: nothing new may change in it."""
        provider = received.target.provider
        if self._changes_attested or received.request.is_crowded or not self.models.is_anthropic(provider):
            return False
        if not is_attested(received.request):
            return False
        if received.session.id not in self._attested:
            self._attested.put(received.session.id, True)
            log.warning(
                "sent unchanged: Claude Code signed it", extra={"session": received.session.id, "see": ATTESTED}
            )
        return True

    async def _session(self, request: chat.Request, incoming: ChatRequest, target: Target) -> Session:
        return await self._sessions.find(incoming.caller, request, dict(incoming.headers), target.provider)

    def _reply(
        self, draft: Draft, question: UpstreamRequest, on_recall: OnRecall
    ) -> AbstractAsyncContextManager[ReplyStream]:
        """Send; calls of a tool of ours in the reply are answered before anything else reads it."""
        if self._upstreams is None:
            raise NoProvider("no provider is configured")
        send = partial(self._upstreams.send, draft.target.provider)
        if self._recall is None or not draft.own_tools:
            return send(question)
        return self._recall.answer(send, question, draft, on_recall)

    def credential(self, incoming: ChatRequest) -> str:
        """Return the client's own key for its provider; "" if it sent none."""
        return credential(incoming.headers, self._token)

    def _call(self, observe: Callable[P, Value], *args: P.args, **kwargs: P.kwargs) -> Value | None:
        """Call an observer and return its result; a failure in it never blocks the request."""
        try:
            return observe(*args, **kwargs)
        except Exception as e:  # noqa: BLE001 - whatever broke, the user's request goes on
            log.warning("an observer failed", extra={"what": location(e)})
            self._metrics.count_fault("observer", e)
            return None

    def _record(self, exchange: Exchange) -> None:
        usage = exchange.usage
        provider = exchange.draft.target.provider
        timing = exchange.elapsed_s, exchange.first_byte_s
        self._metrics.count_chat(provider, exchange.outcome, exchange.status, *timing)
        if usage is not None:
            tokens = {"input": usage.input_tokens, "cached": usage.cached_tokens, "output": usage.output_tokens}
            self._metrics.count_chat_tokens(provider, tokens)
            if usage.input_tokens:
                hit = "hit" if usage.cached_tokens else "miss"
                self._metrics.prompt_cache_requests.labels(provider, hit).inc()


async def _parse(incoming: ChatRequest, remembered: RememberedMessages | None) -> chat.Request:
    if len(incoming.body) <= PARSED_BYTES:
        return chat.parse(incoming.body, incoming.wire, remembered)
    return await asyncio.to_thread(lambda: chat.parse(incoming.body, incoming.wire, remembered).read_whole())


_MODEL_FIELD = re.compile(rb'name="model"\r?\n\r?\n([^\r\n]{1,200})\r?\n')


def model_in_form(body: bytes) -> str:
    """Return the model that a form names; "" if it names none."""
    found = _MODEL_FIELD.search(body)
    return found[1].decode("utf-8", "replace") if found else ""


def _upstream_request(incoming: ChatRequest, body: bytes, path: str = "", method: str = "POST") -> UpstreamRequest:
    received = incoming.headers, incoming.query
    return UpstreamRequest(incoming.wire, body, *received, path, method, incoming.caller, incoming.cloud)


def _json(value: JsonObject) -> Answer:
    body = json.encode(value)
    headers = ((b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()))
    return Answer(200, headers, body)
