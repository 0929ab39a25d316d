"""A chat service with the stages that a test hands in, before a provider that answers {}."""

import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.evil import Evil, answering, evil, http

from kimi_proxy.core.config import parse
from kimi_proxy.features.chat.pipeline import Stage
from kimi_proxy.proxy.upstream import Upstreams
from kimi_proxy.services.chat.handler import Chat
from kimi_proxy.services.metrics import Metrics

LONG = "a long tool result"
BODY = json.dumps({"model": "m", "messages": [{"role": "tool", "content": LONG}]}).encode()


@asynccontextmanager
async def world(*stages: Stage, now: Callable[[], float] = time.monotonic) -> AsyncIterator[tuple[Chat, Evil, Metrics]]:
    metrics = Metrics()
    async with evil(answering(http(b"{}"))) as provider:
        config = parse(provider.toml(), {}, Path("home"))
        upstreams = Upstreams(config.providers, config.provider_keys)
        try:
            yield Chat(config, upstreams, metrics, stages=stages, now=now), provider, metrics
        finally:
            await upstreams.close()
