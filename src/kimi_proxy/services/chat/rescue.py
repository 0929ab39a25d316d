"""The last rescue: a conversation that its provider would refuse as too long is compressed by the local outline.

No request of ours is sent for it. It is stored, repeated in the same bytes and undone like every other compression.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kimi_proxy.core.config.sections import CompressionSettings
from kimi_proxy.core.errors import CompressionRefused, Reason, StoreUnavailable
from kimi_proxy.features.chat.compression import Preset, can_compress
from kimi_proxy.features.chat.context import is_certainly_below
from kimi_proxy.features.chat.pipeline import ChangingStage, Draft, Note
from kimi_proxy.features.models.routing import room_beside
from kimi_proxy.services.chat.compression import EVENT, Compressor, DueCompression, event_of
from kimi_proxy.services.chat.models import count_ratio
from kimi_proxy.services.store.protocols import SessionStore

TARGET_SHARE = 0.8  # what a rescued request takes of that: room for some turns, before the cache is written anew
TOO_LONG: Reason = "exceeds_window"  # and nothing can be taken out of it

# Returns the window of the largest model that may answer a request; None if it is unknown.
LargestWindow = Callable[[Draft], int | None]


@dataclass(frozen=True, slots=True)
class RescuePlan:
    """A compression, and the room that the request then has to fit into."""

    made: DueCompression
    room: float  # in the provider's tokens
    ratio: float  # of those to ours


class Rescue(ChangingStage[RescuePlan]):
    """The stage behind automatic compression; where a larger model is left to route to, it does nothing."""

    def __init__(
        self,
        settings: CompressionSettings,
        usual: Preset,
        compressor: Compressor,
        largest_window: LargestWindow,
        session_store: SessionStore,
    ) -> None:
        self.is_on = settings.rescue
        self._preset = replace(usual, threshold_percentage=0.0, asks_provider=False, least_saved=0.0)
        self._compressor = compressor
        self._largest_window = largest_window
        self._session_store = session_store

    async def decide(self, draft: Draft) -> RescuePlan | None:
        """Return how far a request has to be compressed to fit; None if it does."""
        window = self._largest_window(draft) if self.is_on else None
        if window is None:
            return None
        room = room_beside(draft.request.format.output_limit(draft.request.json), window)
        if is_certainly_below(draft.request, room):
            return None
        ratio = await count_ratio(self._session_store, draft)
        if await self._compressor.tokens(draft.request) * ratio <= room:
            return None
        whole = draft.uncompressed or draft
        if not can_compress(whole.request):
            return RescuePlan(DueCompression("kept_by_provider"), room, ratio)
        preset = replace(self._preset, target_share=TARGET_SHARE * (room / ratio) / window)
        return RescuePlan(DueCompression(await self._why_not(whole), preset), room, ratio)

    async def commit(self, draft: Draft, plan: RescuePlan) -> RescuePlan:
        """Compress the session, with as many of the last exchanges whole as fit."""
        whole = draft.uncompressed or draft
        made = plan.made
        if made.why_not == "kept_by_provider":
            sent = whole
        else:
            if made.why_not is None and made.preset is not None:
                made = await self._compress(whole, made.preset)
            sent = await self._compressor.now_sent(whole)
        reasons = (*((made.why_not,) if made.why_not else ()), *made.reasons)
        is_long = await self._compressor.tokens(sent.request) * plan.ratio > plan.room
        made = replace(made, sent=sent, reasons=(*reasons, TOO_LONG) if is_long else reasons)
        return replace(plan, made=made)

    def render(self, draft: Draft, plan: RescuePlan) -> Draft:
        return plan.made.render(draft)

    async def _why_not(self, whole: Draft) -> Reason | None:
        """Return why the session may not be compressed."""
        try:
            state = await self._compressor.state(whole.caller, whole.session.id)
        except StoreUnavailable:
            return "store_unavailable"
        return "compression_taken_back" if state.is_paused else None

    async def _compress(self, whole: Draft, preset: Preset) -> DueCompression:
        try:
            done = await self._compressor.compress(whole, preset, is_automatic=True)
        except (CompressionRefused, StoreUnavailable) as e:
            return DueCompression(reasons=(e.reason if isinstance(e, CompressionRefused) else "store_unavailable",))
        return DueCompression(notes=(Note(EVENT, event_of(done)),))
