"""Plays a story through the whole product in one process, on a clock of its own, and notes every byte that leaves."""

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from pathlib import Path

from tests.replay.stories import ACT, COMPRESS, MODEL, OBSERVE, REMEMBER, RESTART, UNDO, Story, Turn
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.fakes import Clock
from tests.support.model import Says, events
from tests.support.model import body as answer_body

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.errors import KimiProxyError
from kimi_proxy.core.lines import decode_text
from kimi_proxy.features.chat.compression import presets
from kimi_proxy.services.chat.requests import ChatRequest
from kimi_proxy.services.store.sqlite.store import store_path

ID = re.compile(rb"\b(prn|msk|cmp)_[0-9a-hjkmnp-tv-z]{16}\b")
MEASURED = ("seq", "id", "first_token_ms", "duration_ms")
KINDS = {Wire.CHAT: "openai", Wire.MESSAGES: "anthropic", Wire.RESPONSES: "openai", Wire.GEMINI: "gemini"}


@dataclass(slots=True)
class Sent:
    """A request as the provider got it, and the ids in it that were not on disk by then."""

    turn: int
    body: bytes
    missing: tuple[str, ...]


@dataclass(slots=True)
class Played:
    sent: list[Sent] = field(default_factory=list)
    received: list[bytes] = field(default_factory=list)
    recovered: dict[str, str] = field(default_factory=dict)  # by the ids that the provider was sent
    accounted: list[bytes] = field(default_factory=list)  # the row of each request, without what a clock measured


class Player:
    def __init__(self, story: Story, home: Path) -> None:
        self._story = story
        self._home = home
        self._clock = Clock(4_000_000_000.0)  # later than now, or the store would delete the accounts as old
        self._drawn = count()
        self._wire = Wire.CHAT if story.is_translated else story.wire
        self._turn = 0
        self._says: list[Says] = []
        self.played = Played()

    async def play(self) -> Played:
        async with evil(self._answer) as provider:
            steps = list(self._story.steps)
            while steps:
                until = next((at for at, step in enumerate(steps) if step == RESTART), len(steps))
                async with self._runtime(self._config(provider)) as runtime:
                    for step in steps[:until]:
                        await self._take(step, runtime)
                    if until == len(steps):
                        await self._recover(runtime)
                steps = steps[until + 1 :]
        self.played.accounted = self._accounts()
        return self.played

    def _runtime(self, config: Config) -> AbstractAsyncContextManager[Runtime]:
        return running(config, thread_max_chars=10**9, now=self._clock, draw=self._draw)

    def _draw(self, size: int) -> bytes:
        """Return what is drawn at random elsewhere: ids with other digits would have another number of tokens."""
        return sha256(b"%d" % next(self._drawn)).digest()[:size]

    def _config(self, provider: Evil) -> Config:
        kind = KINDS[self._wire]
        url = provider.url if kind != "gemini" else provider.url.removesuffix("/v1")
        settings = self._story.settings
        default = "" if "[sanitizer]" in settings else "[sanitizer]\nbudget_ms = 60_000\n"
        return parse(
            f'[providers.{self._story.provider}]\ntype = "{kind}"\nbase_url = "{url}"\n'
            f'[models."{MODEL}"]\nprovider = "{self._story.provider}"\nmax_context_size = {self._story.window}\n'
            f"{settings.replace('PROVIDER', self._story.provider)}\n{default}",
            {},
            self._home,
        )

    async def _take(self, step: Turn | str, runtime: Runtime) -> None:
        usual, _ = presets(runtime.config.compression, runtime.config.compaction)
        match step:
            case Turn():
                await self._ask(step, runtime)
            case str() if step == COMPRESS:
                await runtime.compressions.compress(LOCAL, "one", usual)
            case str() if step == UNDO:
                await runtime.compressions.undo(LOCAL, "one")
            case str() if step in (OBSERVE, ACT):
                runtime.settings.switch(LOCAL, {"sanitizer.observe": step == OBSERVE})
            case str() if step == REMEMBER:
                await runtime.project_memory.save(LOCAL, "The importer reads ledgers of five areas. Never edit tests.")

    async def _ask(self, turn: Turn, runtime: Runtime) -> None:
        self._clock.advance(turn.pause_s)
        self._says = list(turn.says)
        headers = [(b"content-type", b"application/json")]
        if turn.session:
            headers.append((b"x-session-id", turn.session.encode()))
        self.played.received.append(turn.body)
        asked = ChatRequest(LOCAL, self._story.wire, turn.body, tuple(headers))
        async with runtime.chat.answer(asked) as answer:
            async for _ in answer.pieces():
                pass
            assert answer.status == 200, answer
        await runtime.sessions.caught_up()
        self._turn += 1

    async def _answer(self, heard: Heard, line: Line) -> None:
        """Answer as the story says; a summary that is asked for beside it is always the same."""
        missing = tuple(sorted(self._not_on_disk(heard.body)))
        self.played.sent.append(Sent(self._turn, heard.body, missing))
        says = self._says.pop(0) if self._says else Says("A summary.")
        says = replace(says, id=f"answer-{len(self.played.sent)}", tokens=(len(heard.body) // 4, 20))
        found = ID.search(heard.body)
        is_stream = bool(json.loads(heard.body).get("stream")) or "streamGenerate" in heard.target
        pieces = events(self._wire, says) if is_stream else [answer_body(self._wire, says)]
        raw = [piece.replace(b"PRN", found[0] if found else b"") for piece in pieces]
        if is_stream:
            await line.stream(*raw)
        else:
            await line.send(http(b"".join(raw)))

    def _accounts(self) -> list[bytes]:
        """Return what is accounted of each request: tokens, reasons, savings and why a cache was missed."""
        with closing(sqlite3.connect(f"file:{store_path(self._home)}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            rows = connection.execute("SELECT * FROM metrics ORDER BY seq").fetchall()
        return [json.dumps({name: row[name] for name in row.keys() if name not in MEASURED}).encode() for row in rows]  # noqa: SIM118

    def _not_on_disk(self, body: bytes) -> set[str]:
        """Return the ids in a body that a second connection does not find in the store as it is now."""
        ids = {match[0].decode() for match in ID.finditer(body) if match[1] != b"cmp"}
        if not ids:
            return set()
        with closing(sqlite3.connect(f"file:{store_path(self._home)}?mode=ro", uri=True)) as connection:
            return ids - {id.decode() for (id,) in connection.execute("SELECT id FROM record")}

    async def _recover(self, runtime: Runtime) -> None:
        ids = {match[0].decode() for sent in self.played.sent for match in ID.finditer(sent.body) if match[1] != b"cmp"}
        for id in sorted(ids):
            try:
                self.played.recovered[id] = decode_text((await runtime.store.originals.get(LOCAL, id)).text)
            except KimiProxyError as e:
                self.played.recovered[id] = f"lost: {e}"


def normalized(bodies: Sequence[bytes]) -> list[bytes]:
    """Return bodies with their ids numbered as they first appear: ids are drawn anew in every run."""
    numbers: dict[bytes, bytes] = {}

    def number(match: re.Match[bytes]) -> bytes:
        return numbers.setdefault(match[0], b"%b_%016d" % (match[1], len(numbers)))

    return [ID.sub(number, body) for body in bodies]
