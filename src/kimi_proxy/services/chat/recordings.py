"""The files of recorded conversations: where they are, whose they are, and how their owner deletes them."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from kimi_proxy.core.caller import LOCAL_SCOPE, Caller
from kimi_proxy.core.config.sections import RecordSettings
from kimi_proxy.core.errors import location
from kimi_proxy.features.sessions import is_session_id

FOLDER = "recordings"
PERSON = "person/"  # how the scope of a person begins

log = logging.getLogger(__name__)


def recordings_folder(settings: RecordSettings, home: Path) -> Path:
    return Path(settings.dir).expanduser() if settings.dir else home.absolute() / FOLDER


class Recordings:
    """Recordings on this machine. In a team everyone has a folder; other servers delete their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of_person(self, person: str) -> Sequence[Path]:
        """Return the recordings of a person, by name."""
        return sorted((self._folder / person).glob("*.jsonl")) if person else sorted(self._folder.glob("*.jsonl"))

    def forget(self, who: Caller, session: str | None) -> None:
        """Delete the recording of a session, or all of a person's. A file that stays is reported in the log."""
        for path in list(self._meant(who, session)):
            try:
                path.unlink(missing_ok=True)
            except OSError as e:
                log.error("a recording was not deleted", extra={"path": str(path), "what": location(e)})

    def _meant(self, who: Caller, session: str | None) -> Iterator[Path]:
        if session is None:
            person = who.scope.removeprefix(PERSON) if who.scope.startswith(PERSON) else who.person
            if person or who.scope == LOCAL_SCOPE:
                yield from self.of_person(person)
        elif is_session_id(session):
            # A session that a team shares was recorded for the person who had it.
            yield from self._folder.glob(f"{session}.jsonl")
            yield from self._folder.glob(f"*/{session}.jsonl")
