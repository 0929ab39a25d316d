"""The last rescue: a conversation that its provider would refuse as too long is compressed by the local outline.

No request of ours is sent for it. It is stored, repeated in the same bytes and undone like every other compression.
"""

from collections.abc import Callable
from dataclasses import replace

from kimi_proxy.core.config.sections import CompressionSettings
from kimi_proxy.core.errors import CompressionRefused, Reason, StoreUnavailable
from kimi_proxy.features.chat.compression import Preset, can_compress
from kimi_proxy.features.chat.context import is_certainly_below
from kimi_proxy.features.chat.pipeline import Draft, Note
from kimi_proxy.features.models.routing import room_beside
from kimi_proxy.services.chat.compression import EVENT, Compressor, event_of
from kimi_proxy.services.chat.models import count_ratio
from kimi_proxy.services.store.protocols import SessionStore

TARGET_SHARE = 0.8  # what a rescued request takes of that: room for some turns, before the cache is written anew
TOO_LONG: Reason = "exceeds_window"  # and nothing can be taken out of it

# Returns the window of the largest model that may answer a request; None if it is unknown.
LargestWindow = Callable[[Draft], int | None]


class Rescue:
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

    async def compress(self, draft: Draft) -> Draft:
        """Return a draft that fits, with as many of the last exchanges whole as fit; the same one if it does."""
        window = self._largest_window(draft) if self.is_on else None
        if window is None:
            return draft
        room = room_beside(draft.request.format.output_limit(draft.request.json), window)
        if is_certainly_below(draft.request, room):
            return draft
        ratio = await count_ratio(self._session_store, draft)
        if await self._compressor.tokens(draft.request) * ratio <= room:
            return draft
        rescued = await self._compress(draft.uncompressed or draft, window, room / ratio)
        if await self._compressor.tokens(rescued.request) * ratio <= room:
            return rescued
        return replace(rescued, reasons=(*rescued.reasons, TOO_LONG))

    async def _compress(self, uncompressed: Draft, window: int, room: float) -> Draft:
        notes: tuple[Note, ...] = ()
        reasons: tuple[Reason, ...] = ()
        preset = replace(self._preset, target_share=TARGET_SHARE * room / window)
        if not can_compress(uncompressed.request):
            return replace(uncompressed, reasons=(*uncompressed.reasons, "kept_by_provider"))
        try:
            state = await self._compressor.state(uncompressed.caller, uncompressed.session.id)
            if state.is_paused:
                reasons = ("compression_taken_back",)
            else:
                done = await self._compressor.compress(uncompressed, preset, is_automatic=True)
                notes = (Note(EVENT, event_of(done)),)
        except (CompressionRefused, StoreUnavailable) as e:
            reasons = (e.reason if isinstance(e, CompressionRefused) else "store_unavailable",)
        sent = await self._compressor.now_sent(uncompressed)
        return replace(sent, notes=(*sent.notes, *notes), reasons=(*sent.reasons, *reasons))
