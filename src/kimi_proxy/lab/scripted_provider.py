"""A provider of our own: a model that says what is written in a script, for the demo and for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kimi_proxy.api.answers import json_answer
from kimi_proxy.core import chat, tokens
from kimi_proxy.core.chat import Wire
from kimi_proxy.lab import demo
from kimi_proxy.lab.demo import Counts
from kimi_proxy.lab.demo_day import Script, Spoken

DOORS = {wire.format.paths[0]: wire for wire in (Wire.CHAT, Wire.MESSAGES)}
MESSAGE_TOKENS = 7  # every provider counts a little differently than we do
REMEMBERED = 64


class ScriptedModel:
    """Answers at the pace of a model; `pause_s` is the time between two pieces."""

    def __init__(self, script: Script, pause_s: float) -> None:
        self.script = script  # may be replaced: tomorrow has one of its own
        self._pause_s = pause_s
        self._ids = count(1)
        self._read: dict[str, bytes] = {}  # by conversation, what was read last: its beginning is cached

    def app(self) -> Starlette:
        return Starlette(routes=[Route(path, self._door(wire), methods=["POST"]) for path, wire in DOORS.items()])

    def _door(self, wire: Wire) -> Callable[[Request], Awaitable[Response]]:
        async def asked(request: Request) -> Response:
            body = chat.parse(await request.body(), wire)
            spoken = demo.answer(body, self.script)
            counts = await asyncio.to_thread(self._counts, body, spoken)
            told = wire, spoken, counts, f"answer-{next(self._ids)}", body.model
            if not body.is_stream:
                return json_answer(demo.whole(*told))
            return StreamingResponse(self._paced(demo.frames(*told)), media_type="text/event-stream")

        return asked

    async def _paced(self, frames: Iterator[bytes]) -> AsyncIterator[bytes]:
        for frame in frames:
            await asyncio.sleep(self._pause_s)
            yield frame

    def _counts(self, body: chat.Request, spoken: Spoken) -> Counts:
        parts = [part for message in body.messages for part in message.parts]
        seen = {part.start for part in parts}
        texts = [part.text for part in (*parts, *(part for part in body.system if part.start not in seen))]
        texts.append(bytes(body.members.get("tools", b"")).decode())
        read = sum(map(tokens.count, texts)) + MESSAGE_TOKENS * len(body.messages)
        written = tokens.count(spoken.text) + 20 * len(spoken.calls)
        return Counts(read, round(read * self._share_read_before(body)), max(1, written))

    def _share_read_before(self, body: chat.Request) -> float:
        """The share of the conversation that begins as it did the last time."""
        place = next((part.text for message in body.messages for part in message.parts if message.role == "user"), "")
        before, now = self._read.get(place, b""), body.body
        self._read[place] = now
        if len(self._read) > REMEMBERED:
            self._read.pop(next(iter(self._read)))
        same = next(
            (at for at, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
        )
        return same / len(now)
