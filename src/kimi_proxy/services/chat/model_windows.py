"""Finds the context windows that neither the settings nor the table know, by asking the provider for its models."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.models import Models, Target, lines_to_paste, window_in
from kimi_proxy.proxy.headers import UpstreamRequest
from kimi_proxy.services.chat.handler import ChatObserver
from kimi_proxy.services.chat.relay import Exchange
from kimi_proxy.services.events import Publish, no_op

MAX_MODELS = 1000  # clients choose names freely
SHOWN = 50

log = logging.getLogger(__name__)

ListModels = Callable[[str, UpstreamRequest], Awaitable[JsonValue]]


class ModelWindows(ChatObserver):
    """Asks once for each model; a window that stays unknown is reported once, with the lines that would set it."""

    def __init__(self, models: Models, list_models: ListModels, publish: Publish = no_op) -> None:
        self._models = models
        self._list_models = list_models
        self._publish = publish
        self._asked: LruCache[tuple[str, str], bool] = LruCache(MAX_MODELS, shared=True)
        self._unknown: LruCache[Target, str] = LruCache(SHOWN)
        self._asking: set[asyncio.Task[None]] = set()

    def on_end(self, exchange: Exchange) -> None:
        """Ask once a model has answered: then there is one, and the request did not wait for it."""
        draft, target = exchange.draft, exchange.draft.target
        is_asked = (target.provider, target.model) in self._asked
        is_answered = (exchange.status, exchange.outcome) == (200, "ok")
        if not is_answered or is_asked or self._models.is_certain(target):
            return
        self._asked.put((target.provider, target.model), True)
        question = UpstreamRequest(draft.request.wire, b"", draft.headers)
        task = asyncio.create_task(self._ask(target, question))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def unknown(self) -> list[JsonObject]:
        """Return the models whose window is not known, the last seen last."""
        targets = [target for target, _ in self._unknown.items() if self._models.window(target) is None]
        return [_to_json(target) for target in targets]

    async def close(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask(self, target: Target, question: UpstreamRequest) -> None:
        window = window_in(await self._list_models(target.provider, question), target.model)
        names = {"provider": target.provider, "model": target.name[:200]}
        if window is not None:
            self._models.learn(target, window)
            log.info("window learned from the provider", extra={**names, "max_context": window})
        elif self._models.window(target) is None:
            self._unknown.put(target, "")
            log.warning("a model's window is not known: paste these lines", extra={**names, "lines": _line(target)})
            self._publish("model_unknown", _to_json(target))


def _to_json(target: Target) -> JsonObject:
    return {"provider": target.provider, "model": target.name[:200], "lines": lines_to_paste(target)}


def _line(target: Target) -> str:
    return lines_to_paste(target).strip().replace("\n", " | ")
