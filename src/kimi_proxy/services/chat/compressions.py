"""Compression that happens by itself, when the window is nearly full and somebody has switched it on."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from kimi_proxy.core.config.sections import CompressionSettings as Settings
from kimi_proxy.core.errors import CompressionRefused, Reason, StoreUnavailable
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.compression import Preset
from kimi_proxy.features.context import is_certainly_below
from kimi_proxy.features.metering import window_percent
from kimi_proxy.features.pipeline import Draft, Note, Stage
from kimi_proxy.services.chat import compression
from kimi_proxy.services.chat.compression import CompressionState, Compressor
from kimi_proxy.services.chat.routing import Scale
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.store import SessionStore

ROW_S = 3600.0  # those that follow each other within an hour are in a row


class AutoCompression:
    """The step after the one that repeats what stands: it looks whether that is enough."""

    def __init__(
        self,
        settings: Settings,
        preset: Preset,
        compressor: Compressor,
        session_store: SessionStore,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.is_on = settings.automatic
        self._settings = settings
        self._preset = preset
        self._compressor = compressor
        self._scale = Scale(session_store)
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

    def _rests(self, standing: CompressionState, session: str) -> Reason | Literal[""]:
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
            notes = (Note("compression_event", compression.event(told)),)
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


@dataclass(frozen=True, slots=True)
class Fullness:
    """How full a session's window is, by its newest request; None if its size is not known."""

    percentage: float | None
    threshold: float

    @property
    def is_below(self) -> bool:
        return self.percentage is None or self.percentage < self.threshold

    def told(self) -> JsonObject:
        return {
            "error": "below_threshold" if self.percentage is not None else "window_unknown",
            "current_percentage": self.percentage,
            "threshold": self.threshold,
            "hint": _HINT if self.percentage is not None else _UNKNOWN,
        }


_HINT = 'there is room left: wait, or send {"force": true}; /simulate shows what would become of the session'
_UNKNOWN = 'name the model in [models] with its max_context_size, or send {"force": true}'


class Compressions:
    def __init__(
        self,
        compressor: Compressor,
        sessions: Sessions,
        session_store: SessionStore,
        usual: Preset,
        light: Preset | None,
    ) -> None:
        self.usual = usual
        self.light = light
        self._compressor = compressor
        self._sessions = sessions
        self._session_store = session_store

    async def fullness(self, id_or_name: str, preset: Preset) -> Fullness:
        session = await self._sessions.session(id_or_name)
        newest = await self._session_store.newest_metric(session.id)
        if newest is not None:
            return Fullness(newest.percent, preset.threshold_percentage)
        draft = await self._compressor.now_sent(self._compressor.last(session.id))
        share = window_percent(await self._compressor.tokens(draft.request), self._compressor.window(draft))
        return Fullness(share, preset.threshold_percentage)

    async def compress(self, id_or_name: str, preset: Preset) -> JsonObject:
        session = await self._sessions.session(id_or_name)
        _, told = await self._compressor.compress(self._compressor.last(session.id), preset)
        return told

    async def simulate(self, id_or_name: str, preset: Preset) -> JsonObject:
        session = await self._sessions.session(id_or_name)
        return await self._compressor.simulate(session.id, preset)

    async def undo(self, id_or_name: str) -> JsonObject:
        return await self._compressor.undo((await self._sessions.session(id_or_name)).id)

    async def stats(self, id_or_name: str | None = None) -> JsonObject:
        session = None if id_or_name is None else (await self._sessions.session(id_or_name)).id
        return {"threshold": self.usual.threshold_percentage, **await self._compressor.stats(session)}
