"""Compression that happens by itself, when the window is nearly full and somebody has switched it on."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from kimi_proxy.core.compression import Compression as Settings
from kimi_proxy.core.errors import CompressionRefused, StoreUnavailable
from kimi_proxy.core.reasons import Reason
from kimi_proxy.features.composition import is_certainly_below
from kimi_proxy.features.compression.preset import Preset
from kimi_proxy.features.pipeline import Draft, Note, Stage
from kimi_proxy.services import compression_told
from kimi_proxy.services.compressor import Compressor
from kimi_proxy.services.scale import Scale
from kimi_proxy.services.standing import Standing
from kimi_proxy.services.store import Ledger

ROW_S = 3600.0  # those that follow each other within an hour are in a row


class AutoCompression:
    """The step after the one that repeats what stands: it looks whether that is enough."""

    def __init__(
        self,
        settings: Settings,
        preset: Preset,
        compressor: Compressor,
        ledger: Ledger,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.is_on = settings.automatic
        self._settings = settings
        self._preset = preset
        self._compressor = compressor
        self._scale = Scale(ledger)
        self._now = now
        self._tried: dict[str, float] = {}  # sessions for which it did not help

    async def stage(self, draft: Draft) -> Stage:
        if not self.is_on or not await self._is_full(draft):
            return _same
        rests = self._rests(await self._compressor.standing(draft.session.id), draft.session.id)
        return _because(rests) if rests else await self._compressed(draft.uncut or draft)

    async def _is_full(self, draft: Draft) -> bool:
        window = self._compressor.window(draft)
        limit = (window or 0) * self._preset.threshold_percentage / 100
        if not limit or is_certainly_below(draft.request, limit):
            return False
        return await self._compressor.tokens(draft.request) * await self._scale.ratio(draft.session.id) >= limit

    def _rests(self, standing: Standing, session: str) -> Reason | Literal[""]:
        """Why nothing happens by itself now; empty if it may."""
        now = self._now()
        if standing.is_paused:
            return "compression_taken_back"
        # What lies ahead of us was written by a clock that has been set right since: it was long ago.
        last = (*standing.automatic[:1], self._tried.get(session, 0.0))
        if any(0 <= now - at < self._settings.cooldown_s for at in last):
            return "compression_cooldown"
        in_a_row = sum(1 for at in standing.automatic if 0 <= now - at < ROW_S)
        return "compression_limit" if in_a_row >= self._settings.max_in_a_row else ""

    async def _compressed(self, uncut: Draft) -> Stage:
        notes: tuple[Note, ...] = ()
        reasons: tuple[Reason, ...] = ()
        try:
            _, told = await self._compressor.compress(uncut, self._preset, is_automatic=True)
            notes = (Note("compression_event", compression_told.event(told)),)
        except CompressionRefused as e:
            reasons = (e.reason,)
        except StoreUnavailable:
            reasons = ("store_unavailable",)
        if reasons:
            self._remember(uncut.session.id)
        # Somebody else may have compressed it meanwhile: what stands now is what leaves.
        cut = await self._compressor.now_sent(uncut)
        done = replace(cut, notes=(*cut.notes, *notes), reasons=(*cut.reasons, *reasons))
        return lambda draft: done

    def _remember(self, session: str) -> None:
        if len(self._tried) >= 10_000:
            self._tried.clear()
        self._tried[session] = self._now()


def _same(draft: Draft) -> Draft:
    return draft


def _because(reason: Reason) -> Stage:
    return lambda draft: replace(draft, reasons=(*draft.reasons, reason))
