"""opencode: its database, the folders of JSON files that it kept before, and what `opencode export` writes."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import (
    AgentCall,
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    arguments_of,
    document,
    items,
    mapping,
    open_regular,
    read_document,
    seconds,
    string,
)

AGENT = "opencode"
MAX_SESSIONS = 100_000
MAX_VALUE_BYTES = 16 * 1024**2
MAX_STEPS = 50_000_000  # of SQLite's machine in one query; a thousand parts of a message take about 20,000
STEPS_PER_CALL = 10_000


def read_export(export: Mapping[str, JsonValue], name: str) -> Iterator[Transcript]:
    """Yield the session that `{"info": …, "messages": [{"info": …, "parts": […]}]}` is."""
    info = mapping(export.get("info"))
    builder = TranscriptBuilder(AGENT, string(info.get("id")) or name)
    builder.transcript.version = string(info.get("version"))
    for message in map(mapping, items(export.get("messages"))):
        _message(builder, mapping(message.get("info")), [mapping(part) for part in items(message.get("parts"))])
    return builder.finish()


def read_folder(session: Path) -> Iterator[Transcript]:
    """Yield the session of `storage/session/PROJECT/ses_….json`, with its messages and parts in folders beside it."""
    storage = session.parent.parent.parent
    name = session.stem
    builder = TranscriptBuilder(AGENT, name)
    builder.transcript.version = string(read_document(session).get("version"))
    for file in sorted((storage / "message" / name).glob("*.json")):
        parts = sorted((storage / "part" / file.stem).glob("*.json"))
        _message(builder, read_document(file), [read_document(part) for part in parts])
    return builder.finish()


def read_database(file: Path, max_steps: int = MAX_STEPS) -> Iterator[Transcript]:
    """Yield the sessions of `opencode.db`, without data that is still in its write-ahead log.

    It is opened as immutable, because SQLite would otherwise create files next to a database in use. The file is not
    trusted: only stored tables are read, with limits on values and on the steps of each query.
    """
    open_regular(file).close()
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            database = _BoundedDatabase(connection, max_steps)
            if not database.has_stored_tables():
                return
            for (session,) in database.rows("SELECT id FROM session ORDER BY id LIMIT ?", MAX_SESSIONS):
                yield from _session(database, str(session))
        except sqlite3.DatabaseError:
            return  # damaged, beyond the limits, or of a version that keeps its sessions in another way


class _BoundedDatabase:
    def __init__(self, connection: sqlite3.Connection, max_steps: int) -> None:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        connection.execute("PRAGMA trusted_schema = OFF")
        self._connection = connection
        self._calls = max_steps // STEPS_PER_CALL

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Return all rows; raise OperationalError if that takes more steps than allowed."""
        calls = iter(range(self._calls))
        self._connection.set_progress_handler(lambda: next(calls, None) is None, STEPS_PER_CALL)
        return self._connection.execute(query, values).fetchall()

    def has_stored_tables(self) -> bool:
        """Return whether all values are stored ones: a view or a computed column could run without end."""
        stored = """
            SELECT name FROM sqlite_schema AS found
            WHERE type = 'table' AND rootpage > 0 AND name IN ('session', 'message', 'part')
            AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo(found.name) WHERE hidden > 0)
        """
        return len(self.rows(stored)) == 3


def _session(database: _BoundedDatabase, session: str) -> Iterator[Transcript]:
    builder = TranscriptBuilder(AGENT, session)
    in_order = "SELECT id FROM message WHERE session_id = ? ORDER BY time_created, id"
    for (message,) in database.rows(in_order, session):
        for (data,) in database.rows("SELECT data FROM message WHERE id = ? LIMIT 1", message):
            parts = database.rows("SELECT data FROM part WHERE message_id = ? ORDER BY id", message)
            info = {**document(_bytes(data)), "id": str(message)}
            _message(builder, info, [document(_bytes(part)) for (part,) in parts])
    return builder.finish()


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


def _message(builder: TranscriptBuilder, info: Mapping[str, JsonValue], parts: list[Mapping[str, JsonValue]]) -> None:
    at = seconds(mapping(info.get("time")).get("created"))
    if info.get("role") == "user":
        if any(part.get("type") == "compaction" for part in parts):
            builder.start_over()
        for part in parts:
            builder.add_user(part.get("text"), at, is_person=part.get("synthetic") is not True)
        return
    builder.model = string(info.get("modelID"))
    # A message is one answer, even after one that has called nothing.
    request = builder.answer(string(info.get("id")) or f"{len(builder.transcript.requests)}", at)
    request.usage = _usage(mapping(info.get("tokens")))
    for part in parts:
        kind = part.get("type")
        if kind == "text":
            request.said += string(part.get("text"))
        elif kind == "reasoning":
            request.thinking += string(part.get("text"))
        elif kind == "tool":
            _tool(builder, part, at)


def _tool(builder: TranscriptBuilder, part: Mapping[str, JsonValue], at: float) -> None:
    state = mapping(part.get("state"))
    # Published sessions may have their ids replaced by one word; a part has its own.
    call_id = f"{string(part.get('callID'))}/{string(part.get('id'))}"
    call = AgentCall(call_id, string(part.get("tool")), arguments_of(state.get("input")))
    builder.transcript.requests[-1].calls.append(call)
    failed = state.get("status") == "error"
    ended = seconds(mapping(state.get("time")).get("end"))
    builder.add_output(call_id, state.get("error" if failed else "output"), failed, ended or at)


def _usage(tokens: Mapping[str, JsonValue]) -> ProviderUsage | None:
    cache = mapping(tokens.get("cache"))
    # Its "reasoning" is a part of its "output".
    counts = tokens.get("input"), cache.get("read"), cache.get("write"), tokens.get("output")
    return ProviderUsage.from_counts(*counts) if tokens else None
