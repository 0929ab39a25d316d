"""Repeats buried instructions at the end of the prompt, for as long as they are buried."""

import asyncio
from dataclasses import replace

from kimi_proxy.core import tokens
from kimi_proxy.core.context import Reinjection as Settings
from kimi_proxy.features.composition import is_certainly_below
from kimi_proxy.features.health import sink
from kimi_proxy.features.models import Models
from kimi_proxy.features.pipeline import Draft, Stage, unchanged
from kimi_proxy.features.reinjection import HEADING, TOO_LONG, Reminder, instructions, is_reminded, reinjected
from kimi_proxy.services.counting import Counting

COUNT_S = 1.0  # a request that is not weighed by then goes as it is


def _too_long(draft: Draft) -> Draft:
    return replace(draft, reasons=(*draft.reasons, TOO_LONG))


class Reinjection:
    def __init__(self, settings: Settings, models: Models, counting: Counting) -> None:
        self.is_on = settings.enabled
        self._settings = settings
        self._models = models
        self._counting = counting

    async def stage(self, draft: Draft) -> Stage:
        window = self._models.window(draft.target)
        if not self.is_on or window is None:
            return unchanged
        if is_certainly_below(draft.request, window * self._settings.threshold):
            return unchanged
        async with asyncio.timeout(COUNT_S):
            found = sink(await self._counting.composition(draft.request), window, self._settings.threshold)
        words = instructions(draft.request) if found.is_sunk else ""
        if not words or is_reminded(draft.request):
            return unchanged
        if found.system_tokens > self._settings.max_tokens:
            return _too_long
        text = f"{HEADING}\n{words}"
        reminder = Reminder(text, tokens.count(text), found)
        return lambda draft: reinjected(draft, reminder)
