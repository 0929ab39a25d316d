"""The models that the providers list themselves, where the settings name none."""

import asyncio
from collections.abc import Mapping

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError, UpstreamError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.models import Models, Target, models_in
from kimi_proxy.proxy.headers import UpstreamRequest
from kimi_proxy.services.chat.relay import ProviderClient, read_up_to
from kimi_proxy.services.chat.requests import ChatRequest

MODELS_PATH = "/v1/models"
LIST_S = 2.5  # Claude Code waits 3 s for a list of models
MAX_LIST_BYTES = 16 * 1024**2


class ModelLists:
    """Asks all providers that a client may use, at once."""

    def __init__(self, models: Models, upstreams: ProviderClient | None) -> None:
        self._models = models
        self._upstreams = upstreams

    async def read(self, incoming: ChatRequest, credential: str) -> JsonObject:
        """Return the providers' models: one provider's list unchanged, several under names that include it."""
        wire = incoming.wire
        names = self._models.listing(wire, credential)
        listings = await asyncio.gather(*(self._listing(name, incoming) for name in names))
        if len(names) == 1 and listings[0] and self._models.upstream_wire(Target(names[0], ""), wire) is wire:
            return listings[0]
        found: list[tuple[str, str]] = []
        for name, listing in zip(names, listings, strict=True):
            prefix = "" if name == names[0] else f"{name}/"
            found += ((f"{prefix}{model}", name) for model in models_in(listing))
        return wire.format.model_list(found)

    async def _listing(self, provider: str, incoming: ChatRequest) -> JsonObject:
        """Return a provider's own list of models; an empty one if it has none, or is late."""
        if self._upstreams is None:
            return {}
        wire = self._models.upstream_wire(Target(provider, ""), incoming.wire)
        query = incoming.query if wire is incoming.wire else ""
        question = UpstreamRequest(wire, b"", incoming.headers, query, MODELS_PATH, "GET")
        try:
            async with asyncio.timeout(LIST_S), self._upstreams.send(provider, question) as reply:
                body, rest = await read_up_to(MAX_LIST_BYTES, reply.pieces())
                listed = json.decode(body) if reply.status == 200 and rest is None else None
        except (TimeoutError, UpstreamError, ParseError):
            return {}
        return dict(listed) if isinstance(listed, Mapping) else {}
