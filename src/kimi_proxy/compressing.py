"""For Python programs that send chat messages themselves: `kimi_proxy.compress` cuts long tool results in them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core import json
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.services.chat.messages import ShortenedMessages
from kimi_proxy.services.configuration import load

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ShortenedMessages", "acompress", "compress", "original"]


def compress(
    messages: Sequence[Mapping[str, object]],
    *,
    model: str = "",
    session: str = "",
    env: Mapping[str, str] = os.environ,
) -> ShortenedMessages:
    """Return OpenAI chat messages with long tool results cut by the sanitizer's policy; the rest is unchanged.

    Originals are on disk when it returns: `original` restores one by its hash. Messages of one `session`, or with the
    same first user message, are cut to the same bytes every time. Settings come from `env` and the configuration file,
    as for every command. On any failure the messages are returned unchanged, with a warning. Raise InvalidParams if
    they are not a list of objects. In an event loop use `acompress`.
    """
    return asyncio.run(acompress(messages, model=model, session=session, env=env))


async def acompress(
    messages: Sequence[Mapping[str, object]],
    *,
    model: str = "",
    session: str = "",
    env: Mapping[str, str] = os.environ,
) -> ShortenedMessages:
    """Do what `compress` does, in a running event loop."""
    plain = json.decode(json.encode(list(messages)))
    async with running(load(env).config, env=env) as runtime:
        who = await _caller(runtime)
        await runtime.pruner.warm()
        return await runtime.messages.shorten(who, plain, model, session)


def original(hashed: str, env: Mapping[str, str] = os.environ) -> str:
    """Return the text behind one of the `hashes` of a result. Raise PruneIdNotFound if it has expired."""

    async def read() -> str:
        async with running(load(env).config, env=env) as runtime:
            return await runtime.messages.original(await _caller(runtime), hashed)

    return asyncio.run(read())


async def _caller(runtime: Runtime) -> Caller:
    """Return whom this program works for: in a team the person of its token, whom AccessDenied says to name."""
    return await runtime.team.people.of_token(runtime.config.token) if runtime.team else LOCAL
