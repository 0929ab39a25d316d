"""Models and their context windows: routing to a larger model, and windows that the settings do not contain.

A request that nearly fills the context window of its model goes to a larger one, and so do the following ones.
"""

import asyncio
import logging
from hashlib import sha256
from typing import TypedDict

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config.sections import RoutingSettings as Settings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.lines import decode_text, encode_text
from kimi_proxy.features.chat.context import is_certainly_below
from kimi_proxy.features.chat.pipeline import ChangingStage, Draft
from kimi_proxy.features.models import Models, Target, lines_to_paste, window_in
from kimi_proxy.features.models.routing import RETURN_SHARE, ModelWindow, Route, apply_route, choose_model
from kimi_proxy.proxy.headers import UpstreamRequest
from kimi_proxy.services.chat.context import TokenCounter
from kimi_proxy.services.chat.notes import Notes, Wanted
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.providers import ListModels
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.events import Publish, no_op
from kimi_proxy.services.remembered import Memory, Remembered, stays
from kimi_proxy.services.store.protocols import SessionStore

MOST_OFF = 2.0  # a provider that counts more than twice our estimate counts something else
DISK_S = 0.25
ROUTING_DISK_S = 0.5
COUNT_S = 1.0  # a request whose tokens are not counted by then stays on its conversation's model
BYTES_PER_TOKEN = 4  # about
MAX_SESSIONS = 10_000  # conversations whose route is kept in memory
STAYS = ""  # the route of a conversation that uses the requested model
MAX_MODELS = 1000  # clients choose names freely
SHOWN = 50  # models whose window is unknown

log = logging.getLogger(__name__)


async def count_ratio(session_store: SessionStore, draft: Draft) -> float:
    """Return the ratio of the provider's count to our estimate, from the last request of the session.

    It is at least one, so that it never causes an overflow; unless the provider clears text that we count.
    """
    try:
        async with asyncio.timeout(DISK_S):
            last = await session_store.newest_metric(draft.caller.real, draft.session.id)
    except (StoreUnavailable, TimeoutError):
        return 1.0
    if last is None or last.input_tokens is None or not last.tokens_estimated:
        return 1.0
    return min(MOST_OFF, max(0.0 if draft.request.is_cleared else 1.0, last.tokens / last.tokens_estimated))


class Routing(ChangingStage[Route]):
    """The stage that sends a request to a model with a larger context window, and back once it fits again."""

    def __init__(
        self,
        settings: Settings,
        models: Models,
        counter: TokenCounter,
        notes: Notes,
        session_store: SessionStore,
        memory: Memory | None = None,
    ) -> None:
        self.is_on = settings.heavy_duty_fallback
        self._threshold = settings.fallback_threshold
        self._fallback_models = settings.fallback_models
        self._models = models
        self._counter = counter
        self._notes = notes
        self._session_store = session_store
        self._stranded: Remembered[tuple[str, bytes], bool] = Remembered(
            memory or Memory(), "conversations without a larger model", size=MAX_SESSIONS, forget=stays
        )

    async def decide(self, draft: Draft) -> Route | None:
        """Return the model whose window fits the request; None if the requested model certainly does."""
        wanted = self._window(draft.target)
        if not self.is_on or wanted is None or is_certainly_below(draft.request, self._lower(draft, wanted)):
            return None
        route_key = _route_key(draft)
        place = draft.caller.scope, route_key
        now = await self._current(draft, route_key, wanted)
        if now is wanted and is_certainly_below(draft.request, self._limit(draft, wanted)):
            self._stranded.forget(place)
            return None
        try:
            tokens = await self._tokens(draft, wanted)
        except TimeoutError:
            if now is wanted:
                raise
            # The requested model would probably reject it: without a count, keep the larger one.
            return Route(wanted, now, len(draft.request.body) // BYTES_PER_TOKEN, is_counted=False)
        to = self._next(draft, tokens, now, wanted)
        is_tight = tokens >= self._limit(draft, to)
        return Route(wanted, to, tokens, to is not now, is_tight, is_tight and place not in self._stranded)

    async def commit(self, draft: Draft, plan: Route) -> Route:
        """Write down where the conversation goes on."""
        route_key = _route_key(draft)
        if not plan.is_counted:
            return plan
        if plan.is_new:
            target = plan.to.target
            await self._remember(draft, route_key, STAYS if plan.to is plan.wanted else target.name)
            if not draft.caller.is_observed:
                names = {"from": plan.wanted.target.name, "to": target.name}
                about = {"session": draft.session.id, **names, "tokens": plan.tokens, "max_context": plan.to.size}
                log.warning("routed", extra=about)
        self._stranded.forget((draft.caller.scope, route_key))
        if plan.is_tight:
            self._stranded.put((draft.caller.scope, route_key), True)
        return plan

    def render(self, draft: Draft, plan: Route) -> Draft:
        return apply_route(draft, plan)

    def largest_window(self, draft: Draft) -> int | None:
        """Return the window of the largest model that may answer; None if that of the requested one is not known."""
        wanted = self._window(draft.target)
        if wanted is None:
            return None
        others = self._others(draft.target) if self.is_on else []
        return max((wanted.size, *(one.size for one in others)))

    async def _tokens(self, draft: Draft, wanted: ModelWindow) -> int:
        """Return about the tokens that the provider will count; our own count if the difference does not matter."""
        async with asyncio.timeout(COUNT_S):
            counted = (await self._counter.composition(draft.request)).total
            matters = counted * MOST_OFF >= self._lower(draft, wanted)
            if not matters:
                return counted
            return round(counted * await count_ratio(self._session_store, draft))

    def _next(self, draft: Draft, tokens: int, now: ModelWindow, wanted: ModelWindow) -> ModelWindow:
        """Return the next route of a conversation that is on `now`."""
        if now is not wanted and tokens < self._lower(draft, wanted):
            return wanted
        if tokens < self._limit(draft, now):
            return now
        answer = _answer_limit(draft)
        return choose_model(tokens, now, self._others(now.target), self._threshold, answer) or now

    def _others(self, target: Target) -> list[ModelWindow]:
        windows = map(self._window, self._models.siblings(target, self._fallback_models))
        return [window for window in windows if window is not None]

    def _limit(self, draft: Draft, window: ModelWindow) -> float:
        return window.limit(self._threshold, _answer_limit(draft))

    def _lower(self, draft: Draft, wanted: ModelWindow) -> float:
        """Return the tokens below which a conversation returns to the requested model."""
        return self._limit(draft, wanted) * RETURN_SHARE

    def wanted(self, draft: Draft) -> Wanted:
        """The note about where a conversation is."""
        return {"routed": [_route_key(draft)]}

    async def _current(self, draft: Draft, route_key: bytes, wanted: ModelWindow) -> ModelWindow:
        """Return where a conversation has been, in this process or in an earlier one."""
        key = await self._read(draft, route_key)
        was = (each for each in self._others(wanted.target) if each.target.name == key and each.size > wanted.size)
        return next(was, wanted)

    async def _read(self, draft: Draft, route_key: bytes) -> str:
        """Return the name of the model; if it cannot be read now, the next request looks again."""
        try:
            async with asyncio.timeout(ROUTING_DISK_S):
                found = await self._notes.get(draft.caller, "routed", [route_key])
        except (StoreUnavailable, TimeoutError) as e:
            log.warning("a route cannot be read", extra={"what": str(e)[:300]})
            return decode_text(self._notes.last(draft.caller, "routed", route_key))
        return decode_text(found.get(route_key, b""))

    async def _remember(self, draft: Draft, route_key: bytes, key: str) -> None:
        route = encode_text(key)
        try:
            async with asyncio.timeout(ROUTING_DISK_S):
                await self._notes.delete(draft.caller, "routed", [route_key])
                if key != STAYS:
                    await self._notes.put_if_absent(draft.caller, "routed", {route_key: route}, draft.session.id)
        except (StoreUnavailable, TimeoutError) as e:
            log.warning("a route was not stored", extra={"what": str(e)[:300]})
        finally:
            self._notes.assume(draft.caller, "routed", route_key, route, draft.session.id)

    def _window(self, target: Target) -> ModelWindow | None:
        size = self._models.window(target)
        return None if size is None else ModelWindow(target, size)


def _answer_limit(draft: Draft) -> int:
    """Return the most tokens that the answer may have, as the client asks; 0 if it sets no limit."""
    return draft.request.format.output_limit(draft.request.json)


def _route_key(draft: Draft) -> bytes:
    """Return the key of a conversation with the model that it asks for."""
    pieces = ("routed", draft.session.id, draft.target.name)
    return sha256(b"\0".join(encode_text(piece) for piece in pieces)).digest()


class UnknownModelBody(TypedDict):
    provider: str
    model: str
    lines: str


class ModelWindows(ChatObserver):
    """Finds the windows that neither the settings nor the table know, by asking the provider for its models.

    It asks once for each model; a window that stays unknown is reported once, with the lines that would set it.
    """

    def __init__(
        self, models: Models, list_models: ListModels, publish: Publish = no_op, memory: Memory | None = None
    ) -> None:
        self._models = models
        self._list_models = list_models
        self._publish = publish
        self._asked: set[tuple[str, str]] = set()
        self._unknown: Remembered[tuple[str, Target], str] = Remembered(
            memory or Memory(), "models without a window", size=SHOWN, forget=stays
        )
        self._asking: set[asyncio.Task[None]] = set()

    def on_end(self, exchange: Exchange) -> None:
        """Ask once a model has answered: then there is one, and the request did not wait for it."""
        draft = exchange.draft
        target = exchange.draft.target
        is_asked = (target.provider, target.model) in self._asked
        is_answered = (exchange.status, exchange.outcome) == (200, "ok")
        if not is_answered or is_asked or self._models.is_certain(target):
            return
        if len(self._asked) >= MAX_MODELS:
            self._asked.clear()
        self._asked.add((target.provider, target.model))
        question = UpstreamRequest(draft.request.wire, b"", draft.headers)
        task = asyncio.create_task(self._ask(draft.caller, target, question))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def unknown_windows(self, who: Caller) -> list[UnknownModelBody]:
        """Return the models that a person used whose window is not known, the last seen last."""
        places = (place for place, _ in self._unknown.items())
        targets = [one for scope, one in places if scope == who.scope and self._models.window(one) is None]
        return [_to_json(target) for target in targets]

    async def close(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask(self, who: Caller, target: Target, question: UpstreamRequest) -> None:
        window = window_in(await self._list_models(target.provider, question), target.model)
        names = {"provider": target.provider, "model": target.name[:200]}
        if window is not None:
            self._models.learn(target, window)
            log.info("window learned from the provider", extra={**names, "max_context": window})
        elif self._models.window(target) is None:
            self._unknown.put((who.scope, target), "")
            log.warning(
                "unknown context window: paste these lines into config.toml", extra={**names, "lines": _line(target)}
            )
            self._publish(who, "model_unknown", _to_json(target))


def _to_json(target: Target) -> UnknownModelBody:
    return {"provider": target.provider, "model": target.name[:200], "lines": lines_to_paste(target)}


def _line(target: Target) -> str:
    return lines_to_paste(target).strip().replace("\n", " | ")
