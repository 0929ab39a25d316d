"""The note of an original: a small JSON object that may contain the session it belongs to."""

from collections.abc import Collection, Sequence

from kimi_proxy.core import json
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.lines import decode_text

SESSION_FIELD = b'"session"'  # in every note that names a session


def read_note(note: bytes) -> JsonObject:
    """Return the fields of a note; none if it cannot be read."""
    try:
        found = json.decode(note)
    except ParseError:
        return {}
    return found if isinstance(found, dict) else {}


def session_of(note: bytes) -> str:
    """Return the chat session that an original belongs to; empty if it belongs to none."""
    return str(read_note(note).get("session", ""))


def of_person(rows: Sequence[tuple[object, ...]], person_id: str) -> dict[str, str]:
    """Return the ids of the originals (id and note) that a team keeps for a person, each with its session or ""."""
    found: dict[str, str] = {}
    for id, note in rows:
        if isinstance(id, bytes) and isinstance(note, bytes) and read_note(note).get("person") == person_id:
            found[decode_text(id)] = session_of(note)
    return found


def of_sessions(rows: Sequence[tuple[object, ...]], sessions: Collection[str] | None) -> frozenset[str]:
    """Return the ids of the originals (id and note) that belong to one of these sessions, or to any (None)."""
    found = set[str]()
    for id, note in rows:
        session = session_of(note) if isinstance(note, bytes) else ""
        if isinstance(id, bytes) and session and (sessions is None or session in sessions):
            found.add(decode_text(id))
    return frozenset(found)
