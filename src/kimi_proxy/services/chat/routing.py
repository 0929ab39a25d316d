"""Sends what nearly fills the window of its model to a larger one, and keeps a conversation where it went."""

import asyncio
import logging
from collections import OrderedDict
from hashlib import sha256

from kimi_proxy.core.config.sections import RoutingSettings as Settings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.context import is_certainly_below
from kimi_proxy.features.models import Models, Target
from kimi_proxy.features.pipeline import Draft, Stage, unchanged
from kimi_proxy.features.routing import RETURN_SHARE, ModelWindow, Route, chosen, routed
from kimi_proxy.services.chat.counting import TokenCounter
from kimi_proxy.services.chat.decisions import SCOPE
from kimi_proxy.services.originals import decoded, encoded
from kimi_proxy.services.store import DecisionRecord, Decisions, SessionStore

MOST_OFF = 2.0  # a provider that counts more than twice our estimate counts something else
DISK_S = 0.25


class Scale:
    def __init__(self, session_store: SessionStore) -> None:
        self._session_store = session_store

    async def ratio(self, session: str) -> float:
        """By the last request of a session; never less than one, so that nothing overflows because of it."""
        try:
            async with asyncio.timeout(DISK_S):
                last = await self._session_store.newest_metric(session)
        except (StoreUnavailable, TimeoutError):
            return 1.0
        if last is None or last.input_tokens is None or not last.tokens_estimated:
            return 1.0
        # Asked again for the same answer, it has counted every turn: the request is what the first of them read.
        counted = min(last.tokens, last.account.tokens_after) if last.account else last.tokens
        return min(MOST_OFF, max(1.0, counted / last.tokens_estimated))


COUNT_S = 1.0  # a request whose tokens are not counted by then goes where its conversation is
BYTES_PER_TOKEN = 4  # about
ROUTING_DISK_S = 0.5
MAX_SESSIONS = 10_000  # remembered; who talked last stays
STAYS = ""  # of a conversation: where it was asked to

log = logging.getLogger(__name__)


class Routing:
    def __init__(
        self, settings: Settings, models: Models, counting: TokenCounter, stored_decisions: Decisions, scale: Scale
    ) -> None:
        self.is_on = settings.heavy_duty_fallback
        self._threshold = settings.fallback_threshold
        self._models = models
        self._counting = counting
        self._stored_decisions = stored_decisions
        self._scale = scale
        self._places: OrderedDict[bytes, str] = OrderedDict()  # of conversations: the model where they are
        self._stranded: OrderedDict[bytes, None] = OrderedDict()  # those that found no larger model

    async def stage(self, draft: Draft) -> Stage:
        asked = self._room(draft.target)
        if not self.is_on or asked is None or is_certainly_below(draft.request, self._lower(asked)):
            return unchanged
        route = await self._route(draft, asked)
        return unchanged if route is None else lambda draft: routed(draft, route)

    async def _route(self, draft: Draft, asked: ModelWindow) -> Route | None:
        place = _place(draft)
        now = await self._now(place, asked)
        if now is asked and is_certainly_below(draft.request, asked.window * self._threshold):
            self._stranded.pop(place, None)
            return None
        try:
            tokens = await self._tokens(draft, asked)
        except TimeoutError:
            if now is asked:
                raise
            # It has outgrown the model that was asked for: to go back there uncounted would be to be refused.
            return Route(asked, now, len(draft.request.body) // BYTES_PER_TOKEN)
        to = self._next(tokens, now, asked)
        if to is not now:
            await self._remember(place, STAYS if to is asked else to.target.key or STAYS)
            log.info("routed", extra=_logged(draft, asked, to, tokens))
        is_tight = tokens >= to.window * self._threshold
        return Route(asked, to, tokens, to is not now, is_tight, self._strands(place, is_tight))

    async def _tokens(self, draft: Draft, asked: ModelWindow) -> int:
        """About what the provider will count; where it makes no difference, what we do."""
        async with asyncio.timeout(COUNT_S):
            counted = (await self._counting.composition(draft.request)).total
            matters = counted * MOST_OFF >= self._lower(asked)
            return round(counted * await self._scale.ratio(draft.session.id)) if matters else counted

    def _next(self, tokens: int, now: ModelWindow, asked: ModelWindow) -> ModelWindow:
        """Where a conversation goes that is in `now`."""
        if now is not asked and tokens < self._lower(asked):
            return asked
        if tokens < now.window * self._threshold:
            return now
        others = (self._room(target) for target in self._models.siblings(now.target))
        return chosen(tokens, now, (room for room in others if room is not None), self._threshold) or now

    def _lower(self, asked: ModelWindow) -> float:
        return asked.window * self._threshold * RETURN_SHARE

    def _strands(self, place: bytes, is_tight: bool) -> bool:
        """Whether a conversation has just come to where no model is large enough."""
        was_tight = place in self._stranded
        self._stranded.pop(place, None)
        if is_tight:
            self._stranded[place] = None
            if len(self._stranded) > MAX_SESSIONS:
                self._stranded.popitem(last=False)
        return is_tight and not was_tight

    async def _now(self, place: bytes, asked: ModelWindow) -> ModelWindow:
        """Where a conversation has been, in this life or in an earlier one."""
        key = self._places.get(place)
        key = await self._read(place) if key is None else key
        was = (self._room(target) for target in self._models.siblings(asked.target) if target.key == key)
        return next((room for room in was if room is not None and room.window > asked.window), asked)

    async def _read(self, place: bytes) -> str:
        """What cannot be read now is not known, and looked for again."""
        try:
            async with asyncio.timeout(ROUTING_DISK_S):
                pin = (await self._stored_decisions.get(SCOPE, [place])).get(place)
        except (StoreUnavailable, TimeoutError) as e:
            log.warning("nobody knows where a conversation was", extra={"what": str(e)[:300]})
            return STAYS
        key = STAYS if pin is None or pin.shown is None else decoded(pin.shown)
        self._know(place, key)
        return key

    async def _remember(self, place: bytes, key: str) -> None:
        self._know(place, key)
        try:
            async with asyncio.timeout(ROUTING_DISK_S):
                new = [] if key == STAYS else [DecisionRecord(place, "routed", encoded(key))]
                await self._stored_decisions.add(SCOPE, new, forget=[place])
        except (StoreUnavailable, TimeoutError) as e:
            log.warning("a route is not written down", extra={"what": str(e)[:300]})

    def _know(self, place: bytes, key: str) -> None:
        self._places[place] = key
        self._places.move_to_end(place)
        if len(self._places) > MAX_SESSIONS:
            self._places.popitem(last=False)

    def _room(self, target: Target) -> ModelWindow | None:
        window = self._models.window(target)
        return None if window is None else ModelWindow(target, window)


def _place(draft: Draft) -> bytes:
    """A conversation, by the model that it asks for."""
    pieces = ("routed", draft.session.id, draft.target.key or draft.target.model)
    return sha256(b"\0".join(encoded(piece) for piece in pieces)).digest()


def _logged(draft: Draft, asked: ModelWindow, to: ModelWindow, tokens: int) -> dict[str, object]:
    names = {"from": asked.target.key, "to": to.target.key}
    return {"session": draft.session.id, **names, "tokens": tokens, "max_context": to.window}
