"""`GET /health`: what the tool says, and what is wrong with the store if something is."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.api.errors import json_answer
from kimi_proxy.services.runtime import Runtime
from kimi_proxy.services.store import Store

PATIENCE_S = 1.0


def endpoint(runtime: Runtime) -> Callable[[Request], Awaitable[Response]]:
    async def health(request: Request) -> Response:
        answer = await runtime.tools["health"].call({})
        state = await store_state(runtime.store)
        # Originals may be out of reach and the pruner still healthy: texts then go out whole.
        return json_answer({**(answer.structured or {}), **({} if state == "ok" else {"store": state})})

    return health


async def store_state(store: Store, patience_s: float = PATIENCE_S) -> str:
    try:
        async with asyncio.timeout(patience_s):
            return (await store.usage()).state
    except TimeoutError:
        return "degraded: the store does not answer"
