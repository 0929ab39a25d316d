"""Reads the token counts in the logs of agents as they are written; only where the settings say so."""

import asyncio
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.addons.log_watcher.settings import LogWatcherSettings as Settings
from kimi_proxy.core import json
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import read
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features import metering
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import LOCAL_IDS
from kimi_proxy.features.metering import LogCount, LogCountFields, Metric, is_count, is_fresh
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.events import Publish, no_op

EVENT = "log_count"
MAX_CONVERSATIONS = 16  # of each agent, the ones that were written to last
LOOK_FOR_MORE_S = 2.0
CONTEXTS = "*/*/context.jsonl"  # below the sessions of Kimi CLI
WIRES = "*/*/agents/main/wire.jsonl"  # below those of Kimi Code
MAX_SESSIONS = 1_000
LATELY_S = 30.0  # a session that has not talked since is not meant by a log that names none
MAX_LINE_BYTES = 64 * 1024
READ_AT_ONCE = 1024**2
# Of more than this between two looks only the end is read: the newest count is what matters.
SKIP_ABOVE = 8 * 1024**2
KNOWN_BYTES = 64  # before the place where we are, by which a file is known again

CONTINUE_SOURCE, LOG_SOURCE, CONTEXT_SOURCE = "continue", "kimi_log", "kimi_context"
CONTINUE_CLI_SOURCE, WIRE_SOURCE = "continue_cli", "kimi_code"
# Of Continue's log.
_HEAD = "Request had the following token counts"
_FIELD = re.compile(r"\s*-\s+([A-Za-z][A-Za-z +/]{0,60}):\s+~?(\d{1,13})\b", re.ASCII)
_LEAST_OUTPUT = re.compile(r"at least (\d{1,13}) tokens remaining for output", re.ASCII)
# The end of a line that stands in quotes of a language, such as a log of JSON: \n is two characters there.
_ESCAPED_LINE = "\\n"
_MAX_FIELDS = 12
# Of the model's window, kept free for its answer: these are no tokens of the request.
_ROOM = frozenset({"contextlength", "counting safety buffer", "max output tokens"})
# Of Kimi CLI's.
_COUNT = re.compile(r"[Uu]pdating token count in context: (\d{1,13})\s*\Z", re.ASCII)
_USAGE_ROLE = '"_usage"'
# Of Kimi Code's, and of Continue's on the command line.
_MEASURED = '"token_counting.measured"'
_CHECKED = "Context usage check {"


class LineFeed:
    """Buffers a line until its end arrives; a line that is too long is skipped completely."""

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._begun: bytes | None = b""  # None: the rest of this line is skipped

    def feed(self, piece: bytes) -> list[str]:
        """Return the lines that are complete now; bytes that are no UTF-8 become replacement characters."""
        lines: list[str] = []
        *ends, rest = piece.split(b"\n")
        for end in ends:
            line = self._with(end)
            if line is not None:
                lines.append(line.decode("utf-8", "replace").rstrip("\r"))
            self.restart()
        self._begun = self._with(rest)
        return lines

    def skip_line(self) -> None:
        """The next bytes come from the middle of a line."""
        self._begun = None

    def restart(self) -> None:
        self._begun = b""

    def _with(self, more: bytes) -> bytes | None:
        return None if self._begun is None or len(self._begun) + len(more) > self._max else self._begun + more


class LogReader:
    """Fed line by line."""

    def feed(self, line: str) -> LogCount | None:
        """Return the count that this line completes."""
        raise NotImplementedError

    def idle(self) -> LogCount | None:
        """Return the count that is complete because nothing more has come for a while."""
        return None


class ContinueLog(LogReader):
    """Continue's core.log, to which a request that was too long to be sent adds a block such as this:

    Not enough context available to include the system message, last user message, and tools.
    There must be at least 1000 tokens remaining for output.
    Request had the following token counts:
    - contextLength: 32768
    - counting safety buffer: 655
    - tools: ~9500
    - system message: ~24000
    - max output tokens: 4096

    It ends with the first line that is none of its fields, or with the file. The last message, without which the
    request would have fitted, is not among them: what was too long had at least all the room that the window has for
    it.
    """

    def __init__(self) -> None:
        self._fields: dict[str, int] | None = None
        self._least_output = 0

    def feed(self, line: str) -> LogCount | None:
        pieces = line.split(_ESCAPED_LINE) if _HEAD in line else [line]
        counted = [count for piece in pieces if (count := self._take(piece)) is not None]
        return counted[-1] if counted else None

    def idle(self) -> LogCount | None:
        return self._end()

    def _take(self, line: str) -> LogCount | None:
        if _HEAD in line:
            ended = self._end()
            self._fields = {}
            return ended
        if self._fields is None:
            announced = _LEAST_OUTPUT.search(line)
            self._least_output = int(announced[1]) if announced else 0
            return None
        found = _FIELD.match(line)
        if found is None or len(self._fields) >= _MAX_FIELDS:
            return self._end()
        self._fields[found[1].strip().lower()] = int(found[2])
        return None

    def _end(self) -> LogCount | None:
        fields, self._fields = self._fields, None
        if not fields:
            return None
        listed = sum(number for name, number in fields.items() if name not in _ROOM)
        window = fields.get("contextlength") or None
        room = (window or 0) - fields.get("counting safety buffer", 0) - self._least_output
        tokens = max(listed, room) if listed else 0
        return LogCount(CONTINUE_SOURCE, tokens, window) if tokens and is_count(tokens) else None


class KimiLog(LogReader):
    """`2026-07-16 10:00:00.123 | DEBUG | … - Updating token count in context: 24804`; it names no conversation."""

    def feed(self, line: str) -> LogCount | None:
        found = _COUNT.search(line)
        return LogCount(LOG_SOURCE, int(found[1])) if found else None


class KimiContext(LogReader):
    """`{"role": "_usage", "token_count": 24804}` among the messages, which are not read."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation

    def feed(self, line: str) -> LogCount | None:
        match _record(line) if _USAGE_ROLE in line else None:
            case {"role": "_usage", "token_count": int(tokens)} if is_count(tokens):
                return LogCount(CONTEXT_SOURCE, tokens, conversation=self._conversation)
        return None


class KimiCodeWire(LogReader):
    """`{"type": "token_counting.measured", "tokens": 1290, …}` after each answer, among all that was said."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation

    def feed(self, line: str) -> LogCount | None:
        match _record(line) if _MEASURED in line else None:
            case {"type": "token_counting.measured", "tokens": int(tokens)} if is_count(tokens):
                return LogCount(WIRE_SOURCE, tokens, conversation=self._conversation)
        return None


class ContinueCliLog(LogReader):
    """`… [debug]: Context usage check {"inputTokens": 881, "contextLimit": 200000, …}`, of `cn --verbose`."""

    def feed(self, line: str) -> LogCount | None:
        _, found, checked = line.partition(_CHECKED)
        match _record("{" + checked) if found else None:
            case {"inputTokens": int(tokens), "contextLimit": int(window)} if tokens and is_count(tokens):
                return LogCount(CONTINUE_CLI_SOURCE, tokens, window if is_count(window) and window else None)
        return None


def _record(line: str) -> JsonValue:
    try:
        return json.decode(line.encode("utf-8", "replace"))
    except ParseError:
        return None


@dataclass(frozen=True, slots=True)
class SeenCount:
    """A count, and its time."""

    count: LogCount
    at: float


class CountMatcher:
    """A log that names a conversation means that one. One that names none means the only one that talks, if any."""

    def __init__(self) -> None:
        self._talked: LruCache[str, float] = LruCache(MAX_SESSIONS)
        self._names: LruCache[str, str] = LruCache(MAX_SESSIONS)  # the agent's name of a conversation → our session
        self._counts: LruCache[str, SeenCount] = LruCache(MAX_SESSIONS)

    def on_request(self, session: str, at: float, name: str = "") -> None:
        self._talked.put(session, at)
        if name:
            self._names.put(name, session)

    def take(self, count: LogCount, at: float) -> str | None:
        """Return the session that `count` is about; None if that is not known."""
        session = self._session(count, at)
        if session is not None:
            self._counts.put(session, SeenCount(count, at))
        return session

    def newer(self, newest: Metric | None, session: str, now: float) -> LogCount | None:
        """Return the log's count of a session if it is fresh and newer than our own."""
        seen = self._counts.get(session)
        if seen is None or not is_fresh(seen.at, now):
            return None
        is_newer = newest is None or seen.at >= newest.at + (newest.duration_ms or 0) / 1000
        return seen.count if is_newer else None

    def _session(self, count: LogCount, at: float) -> str | None:
        if count.conversation:
            known = self._names.get(count.conversation) or LOCAL_IDS.session_named(count.conversation).id
            return known if known in self._talked else None
        lately = [session for session, when in self._talked.items() if at - when <= LATELY_S]
        return lately[0] if len(lately) == 1 else None


class Tail:
    """Lines that are added from now on. A file that appears later is read from its beginning."""

    def __init__(self, path: Path, from_start: bool = False) -> None:
        self._path = path
        self._from_start = from_start
        self._file: int | None = None
        self._at = 0
        self._before = b""
        self._feed = LineFeed()

    def lines(self) -> list[str]:
        """Return those that are complete since the last look; what cannot be read now is read at the next look."""
        lines: list[str] = []
        with suppress(OSError):
            if self._was_replaced():
                lines += self._read_added()  # lines added to the old file before it was rotated
                self.close()
            if self._file is None:
                self._open()
            lines += self._read_added()
        self._from_start = True  # whatever is there at the second look has come since the first
        return lines

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._at, self._before = None, 0, b""
        self._feed.restart()

    def _open(self) -> None:
        # Opening a pipe or a device could block: open it without blocking, then reject it.
        file = os.open(self._path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            os.close(file)
            raise OSError(f"{self._path} is no file")
        self._file = file
        if not self._from_start:
            self._go_to(found.st_size)

    def _was_replaced(self) -> bool:
        if self._file is None:
            return False
        mine = os.fstat(self._file)
        try:
            theirs = self._path.stat()
        except OSError:
            return True
        return (mine.st_dev, mine.st_ino) != (theirs.st_dev, theirs.st_ino)

    def _read_added(self) -> list[str]:
        if self._file is None:
            return []
        size = os.fstat(self._file).st_size
        if size < self._at or not self._is_as_it_was():
            self._at, self._before = 0, b""
            self._feed.restart()
        if size - self._at > SKIP_ABOVE:
            self._go_to(size - READ_AT_ONCE)
        lines: list[str] = []
        while self._at < size and (piece := self._read(min(READ_AT_ONCE, size - self._at))):
            lines += self._feed.feed(piece)
        return lines

    def _read(self, length: int) -> bytes:
        piece = self._bytes(self._at, length)
        self._at += len(piece)
        self._before = (self._before + piece)[-KNOWN_BYTES:]
        return piece

    def _is_as_it_was(self) -> bool:
        """A file that was cut and has grown again past our place is another one."""
        return self._bytes(self._at - len(self._before), len(self._before)) == self._before

    def _go_to(self, place: int) -> None:
        known = min(KNOWN_BYTES, place)
        self._before = self._bytes(place - known, known)
        self._at = place
        self._feed.restart()
        if self._before and not self._before.endswith(b"\n"):
            self._feed.skip_line()

    def _bytes(self, start: int, length: int) -> bytes:
        if self._file is None or length <= 0:
            return b""
        os.lseek(self._file, start, os.SEEK_SET)
        return os.read(self._file, length)


@dataclass(frozen=True, slots=True)
class _Watched:
    tail: Tail
    reader: LogReader

    def counts(self) -> Iterator[LogCount]:
        lines = self.tail.lines()
        counts = [self.reader.feed(line) for line in lines] if lines else [self.reader.idle()]
        return (count for count in counts if count is not None)


class LogWatcher(ChatObserver):
    """One task looks at every file in turn; the disk is read in a thread."""

    def __init__(self, settings: Settings, publish: Publish = no_op, now: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._publish = publish
        self._now = now
        self._matcher = CountMatcher()
        self._logs = [
            _Watched(Tail(Path(settings.continue_log).expanduser()), ContinueLog()),
            _Watched(Tail(Path(settings.continue_cli_log).expanduser()), ContinueCliLog()),
            _Watched(Tail(Path(settings.kimi_log).expanduser()), KimiLog()),
        ]
        self._contexts: dict[Path, _Watched] = {}
        self._is_later = False  # conversations that appear after the first look are read from their beginning
        self._looks_at = 0.0
        self._closing = asyncio.Event()
        self._watching = asyncio.create_task(self._watch()) if settings.enabled else None

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        """A session talks. Kimi CLI and Kimi Code name it in the request, as the key of the prompt cache."""
        # The logs of this machine are about its own user's conversations, and no one's of a team.
        if self._watching is not None and received.caller == LOCAL:
            key = read.string(received.request.members.get("prompt_cache_key"))
            self._matcher.on_request(received.session.id, self._now(), key[:200])

    def newer_count(self, newest: Metric | None, session: str) -> LogCount | None:
        return self._matcher.newer(newest, session, self._now())

    async def close(self) -> None:
        """Wait for a running scan to end before closing the files that it reads."""
        self._closing.set()
        if self._watching is not None:
            await asyncio.wait([self._watching])
        for watched in (*self._logs, *self._contexts.values()):
            watched.tail.close()

    async def _watch(self) -> None:
        while not self._closing.is_set():
            for count in await asyncio.to_thread(self._look):
                self._report(count)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.poll_ms / 1000):
                    await self._closing.wait()

    def _look(self) -> list[LogCount]:
        self._find_conversations()
        counts: dict[tuple[str, str], LogCount] = {}
        for watched in (*self._logs, *self._contexts.values()):
            # Only the newest entry counts.
            counts |= {(count.source, count.conversation): count for count in watched.counts()}
        return list(counts.values())

    def _find_conversations(self) -> None:
        if (now := time.monotonic()) < self._looks_at:
            return
        self._looks_at = now + LOOK_FOR_MORE_S
        cli = Path(self._settings.kimi_sessions)
        code = Path(self._settings.kimi_code_sessions)
        readers: dict[Path, LogReader] = {
            path: KimiContext(path.parent.name) for path in _newest(cli.expanduser(), CONTEXTS)
        }
        readers |= {path: KimiCodeWire(path.parents[2].name) for path in _newest(code.expanduser(), WIRES)}
        for path in self._contexts.keys() - readers.keys():
            self._contexts.pop(path).tail.close()
        for path in readers.keys() - self._contexts.keys():
            self._contexts[path] = _Watched(Tail(path, self._is_later), readers[path])
        self._is_later = True

    def _report(self, count: LogCount) -> None:
        session = self._matcher.take(count, self._now())
        fields: LogCountFields = {
            "source": count.source,
            "session_id": session,
            "tokens": count.tokens,
            "max_context": count.max_context,
            "percent": metering.window_percent(count.tokens, count.max_context),
            "counted_by": "log",
        }
        self._publish(LOCAL, EVENT, fields)


def _newest(folder: Path, pattern: str) -> list[Path]:
    found: list[tuple[float, Path]] = []
    with suppress(OSError):
        for path in folder.glob(pattern):
            with suppress(OSError):  # it was removed in the meantime
                found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)[:MAX_CONVERSATIONS]]
