"""Compression as people ask for it: by the id or name of a session, above a share of its window."""

from dataclasses import dataclass

from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.compression.preset import Preset
from kimi_proxy.features.metering import percent
from kimi_proxy.services.compressor import Compressor
from kimi_proxy.services.sessions import Sessions
from kimi_proxy.services.store import Ledger


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
        self, compressor: Compressor, sessions: Sessions, ledger: Ledger, usual: Preset, light: Preset | None
    ) -> None:
        self.usual = usual
        self.light = light
        self._compressor = compressor
        self._sessions = sessions
        self._ledger = ledger

    async def fullness(self, id_or_name: str, preset: Preset) -> Fullness:
        session = await self._sessions.session(id_or_name)
        newest = await self._ledger.newest_metric(session.id)
        if newest is not None:
            return Fullness(newest.percent, preset.threshold_percentage)
        draft = await self._compressor.now_sent(self._compressor.last(session.id))
        share = percent(await self._compressor.tokens(draft.request), self._compressor.window(draft))
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
