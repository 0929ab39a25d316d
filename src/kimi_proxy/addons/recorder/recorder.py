"""Records conversations as their clients send them, for `kimi-proxy replay`, if the settings enable it.

It also knows the files and owners of recordings, and deletes them for their owners.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.addons.recorder.settings import RecordSettings
from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.caller import LOCAL_SCOPE, PERSON_SCOPE, Caller
from kimi_proxy.core.errors import location
from kimi_proxy.features.accounting import prices_of
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import is_session_id
from kimi_proxy.features.models import Models
from kimi_proxy.features.recording import RecordedRequest, RecordingHead, head_line, line
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.relay import Exchange

MAX_WAITING_CHARS = 64 * 1024**2
MAX_KNOWN = 8  # conversations whose last request is remembered: of others all of it is written again

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    at: float
    received: Draft
    head: RecordingHead
    person: str = ""  # their id


@dataclass(frozen=True, slots=True)
class _Written:
    """The body that a file ends with, and how long the file is."""

    size: int
    body: str


class Recorder(ChatObserver):
    """One thread writes; a disk that takes no writes costs requests nothing."""

    def __init__(
        self,
        settings: RecordSettings,
        home: Path,
        models: Models,
        now: Callable[[], float] = time.time,
        is_erased: Callable[[str], bool] = lambda person_id: False,
    ) -> None:
        self._settings = settings
        self._folder = recordings_folder(settings, home)
        self._models = models
        self._now = now
        self._is_erased = is_erased
        self._recordings = Recordings(self._folder)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="recorder")
        self._loop = asyncio.get_running_loop()
        self._waiting = 0
        self._running: dict[str, _Running] = {}  # by the id of the request
        self._written_before: LruCache[Path, _Written] = LruCache(MAX_KNOWN)
        self._lock = threading.Lock()  # of what was written before

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        model = self._models.model(received.target)
        head = RecordingHead(received.target.name, model.max_context_size if model else None, prices_of(model))
        self._running[outgoing.id] = _Running(round(self._now(), 3), received, head, outgoing.caller.person_id)

    def on_end(self, exchange: Exchange) -> None:
        """Record the request as received."""
        running = self._running.pop(exchange.draft.id, None)
        if running is None:
            return
        request = running.received.request
        session = running.received.session.id
        body = request.body.decode("utf-8", "replace")
        if self._waiting + len(body) > MAX_WAITING_CHARS:
            log.warning("a request was not recorded", extra={"what": "too many requests are waiting to be written"})
            return
        taken = RecordedRequest(running.at, request.wire, body, exchange.status, exchange.usage)
        self._waiting += len(body)
        path = self._folder / running.person / f"{session}.jsonl"  # in a team everyone has a folder
        self._thread.submit(self._written, path, running.head, taken, running.person)

    def forget(self, who: Caller, session: str | None) -> None:
        """Forget what was written last about a session, or about any of a person's; their files are deleted."""
        folder = self._folder / who.person_id
        with self._lock:
            self._written_before.forget_matching(
                lambda path: path.stem == session if session is not None else path.parent == folder
            )
        # What was waiting to be written comes before it.
        self._thread.submit(self._recordings.forget, who, session)

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)

    def _written(self, path: Path, head: RecordingHead, taken: RecordedRequest, person: str) -> None:
        try:
            if not self._is_erased(person):
                self._write(path, head, taken)
        except OSError as e:
            log.warning("a request was not recorded", extra={"what": location(e)})
        finally:
            self._loop.call_soon_threadsafe(self._leave, len(taken.body))

    def _leave(self, size: int) -> None:
        self._waiting -= size

    def _write(self, path: Path, head: RecordingHead, taken: RecordedRequest) -> None:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        with open(path, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            size = file.tell()
            with self._lock:
                known = self._written_before.get(path)
            # Another process may have written to the file, or taken it away: then its last line is not known.
            before = known.body if known and known.size == size else ""
            text = (b"" if size else head_line(head)) + line(taken, before)
            if size + len(text) > self._settings.max_bytes:
                return
            try:
                file.write(text)
                file.flush()
            except OSError:
                file.truncate(size)
                raise
        with self._lock:
            self._written_before.put(path, _Written(size + len(text), taken.body))


FOLDER = "recordings"


def recordings_folder(settings: RecordSettings, home: Path) -> Path:
    return Path(settings.dir).expanduser() if settings.dir else home.absolute() / FOLDER


class Recordings:
    """Recordings on this machine. In a team everyone has a folder; other servers delete their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_person(self, person: str) -> Sequence[Path]:
        """Return the recordings of the person of this id."""
        return sorted((self._folder / person).glob("*.jsonl")) if person else sorted(self._folder.glob("*.jsonl"))

    def forget(self, who: Caller, session: str | None) -> None:
        """Delete the recording of a session, or all of a person's. A file that stays is reported in the log."""
        for path in list(self._matching_files(who, session)):
            try:
                path.unlink(missing_ok=True)
            except OSError as e:
                log.error("a recording was not deleted", extra={"path": str(path), "what": location(e)})

    def _matching_files(self, who: Caller, session: str | None) -> Iterator[Path]:
        if session is None:
            is_own = who.scope.startswith(PERSON_SCOPE)
            person = who.scope.removeprefix(PERSON_SCOPE) if is_own else who.person_id
            if person or who.scope == LOCAL_SCOPE:
                yield from self.of_person(person)
        elif is_session_id(session):
            # A session that a team shares was recorded for the person who had it.
            yield from self._folder.glob(f"{session}.jsonl")
            yield from self._folder.glob(f"*/{session}.jsonl")
