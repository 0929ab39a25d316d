"""The tables, as numbered steps that are appended and never edited.

Scopes, ids, sessions and previews contain text from callers and tools, including lone surrogates, which SQLite's TEXT
cannot store: most of them are BLOBs.
"""

import sqlite3
from collections.abc import Callable

from kimi_proxy.core.errors import StoreUnavailable


def write_a_page(connection: sqlite3.Connection) -> None:
    """Mark the file as ours ("kimi"). Doing it again changes nothing, and shows that the disk takes writes."""
    connection.execute("PRAGMA application_id = 1802071401")


def _1_originals(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE text (
            seq INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            hash BLOB NOT NULL,   -- SHA-256 of the text
            frame BLOB NOT NULL,  -- the text, zstd-compressed
            UNIQUE (scope, hash)
        )"""
    )
    connection.execute(
        """CREATE TABLE record (
            seq INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            id BLOB NOT NULL,
            key BLOB NOT NULL,
            text INTEGER NOT NULL REFERENCES text (seq),
            about BLOB NOT NULL,
            created REAL NOT NULL,
            last_used REAL NOT NULL,
            UNIQUE (scope, id)
        )"""
    )
    connection.execute("CREATE INDEX record_by_key ON record (scope, key)")
    connection.execute("CREATE INDEX record_by_text ON record (text)")
    connection.execute("CREATE INDEX record_by_use ON record (last_used)")
    connection.execute(
        """CREATE TABLE tombstone (
            seq INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            id BLOB NOT NULL,
            expired REAL NOT NULL,
            UNIQUE (scope, id)
        )"""
    )
    write_a_page(connection)
    connection.execute("PRAGMA user_version = 1")


def _2_sessions(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE sessions (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,   -- what its client calls it; empty if it is known by its beginning
            title TEXT NOT NULL,  -- what a person calls it
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            created REAL NOT NULL,
            last_used REAL NOT NULL,
            requests INTEGER NOT NULL DEFAULT 0,
            input_tokens INTEGER NOT NULL DEFAULT 0,
            cached_tokens INTEGER NOT NULL DEFAULT 0,
            output_tokens INTEGER NOT NULL DEFAULT 0,
            tokens_saved INTEGER NOT NULL DEFAULT 0,
            cost_usd REAL,  -- NULL until a price is known
            memory_context TEXT
        )"""
    )
    connection.execute("CREATE INDEX sessions_by_use ON sessions (last_used)")
    connection.execute(
        """CREATE TABLE metrics (
            seq INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            session_id TEXT NOT NULL REFERENCES sessions (id),
            at REAL NOT NULL,
            provider TEXT NOT NULL,
            model TEXT NOT NULL,
            api TEXT NOT NULL,
            tokens_estimated INTEGER NOT NULL,
            tokens_saved INTEGER NOT NULL,
            reasons TEXT NOT NULL,  -- words with a space between them
            max_context INTEGER,
            status INTEGER NOT NULL,
            outcome TEXT NOT NULL,
            finish TEXT NOT NULL,
            input_tokens INTEGER,
            cached_tokens INTEGER,
            output_tokens INTEGER,
            cost_usd REAL,
            first_token_ms INTEGER,
            duration_ms INTEGER
        )"""
    )
    connection.execute("CREATE INDEX metrics_by_session ON metrics (session_id, seq)")
    connection.execute(
        """CREATE TABLE compression_log (
            id INTEGER PRIMARY KEY,
            session_id TEXT NOT NULL REFERENCES sessions (id),
            timestamp REAL NOT NULL,
            original_tokens INTEGER NOT NULL,
            compressed_tokens INTEGER NOT NULL,
            compression_ratio REAL NOT NULL
        )"""
    )
    connection.execute(
        """CREATE VIEW masked_content AS
           SELECT record.seq AS id, CAST(record.id AS TEXT) AS handle, lower(hex(text.hash)) AS content_hash,
                  text.frame AS original_content,  -- zstd-compressed
                  record.created AS created_at
           FROM record JOIN text ON text.seq = record.text"""
    )
    connection.execute("PRAGMA user_version = 2")


def _3_pins(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE pin (
            seq INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            place BLOB NOT NULL,  -- fingerprint of where a part of a conversation stands, and of what it says
            why TEXT NOT NULL,
            hash BLOB,            -- SHA-256 of what was shown; NULL if all was
            shown BLOB,           -- zstd-compressed
            ids BLOB NOT NULL,    -- of its originals, with a space between them
            preview BLOB NOT NULL,
            session BLOB NOT NULL,
            tokens_before INTEGER NOT NULL,
            tokens_after INTEGER NOT NULL,
            created REAL NOT NULL,
            last_used REAL NOT NULL,
            UNIQUE (scope, place)
        )"""
    )
    connection.execute("CREATE INDEX pin_by_use ON pin (last_used)")
    connection.execute("PRAGMA user_version = 3")


def _4_compressions(connection: sqlite3.Connection) -> None:
    for column in (
        "handle TEXT NOT NULL DEFAULT ''",
        "cut INTEGER NOT NULL DEFAULT 0",  # messages before it were summarized, without those of the system
        "kept TEXT NOT NULL DEFAULT ''",  # places before the cut that stayed, with a space between them
        "fingerprint BLOB NOT NULL DEFAULT x''",  # of the messages before the cut
        "hash BLOB NOT NULL DEFAULT x''",
        "frame BLOB NOT NULL DEFAULT x''",  # the replacement message, as JSON, zstd-compressed
        "original TEXT NOT NULL DEFAULT ''",
        "summary_by TEXT NOT NULL DEFAULT ''",
        "kind TEXT NOT NULL DEFAULT ''",
        "automatic INTEGER NOT NULL DEFAULT 0",
        "undone REAL",
    ):
        connection.execute(f"ALTER TABLE compression_log ADD COLUMN {column}")
    connection.execute("CREATE UNIQUE INDEX compression_by_handle ON compression_log (handle)")
    connection.execute("CREATE INDEX compression_by_session ON compression_log (session_id, id)")
    connection.execute("PRAGMA user_version = 4")


def _5_cuts(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE INDEX pin_by_ids ON pin (scope, ids)")
    connection.execute("PRAGMA user_version = 5")


def _6_memory(connection: sqlite3.Connection) -> None:
    # About as many tokens as were estimated; NULL if they were not measured.
    for column in ("system_tokens", "memory_tokens", "tools_tokens", "chat_tokens"):
        connection.execute(f"ALTER TABLE metrics ADD COLUMN {column} INTEGER")
    connection.execute(
        """ALTER TABLE metrics ADD COLUMN memory_ratio REAL GENERATED ALWAYS AS
             (round(1.0 * memory_tokens / nullif(tokens_estimated, 0), 4)) VIRTUAL"""
    )
    connection.execute("ALTER TABLE sessions ADD COLUMN layout TEXT")  # of the newest request, as JSON
    connection.execute(
        """CREATE VIEW memory_metrics AS
           SELECT seq AS id, session_id, id AS request_id, at AS timestamp, tokens_estimated AS total_tokens,
                  system_tokens, memory_tokens, tools_tokens, chat_tokens, memory_ratio
           FROM metrics WHERE memory_tokens IS NOT NULL"""
    )
    connection.execute(
        """CREATE TABLE memory_segments (
            seq INTEGER PRIMARY KEY,
            session_id TEXT NOT NULL,
            request_id TEXT NOT NULL,  -- the first in which it was so
            at REAL NOT NULL,
            kind TEXT NOT NULL,
            segments INTEGER NOT NULL,
            tokens INTEGER NOT NULL,
            preview TEXT NOT NULL  -- how the first of it begins
        )"""
    )
    connection.execute("CREATE INDEX memory_segments_by_session ON memory_segments (session_id, kind, seq)")
    connection.execute("PRAGMA user_version = 6")


def _7_accounts(connection: sqlite3.Connection) -> None:
    # Savings and overhead of a request; NULL if there is no account.
    for column in (
        *("tokens_before", "tokens_after", "cache_lost_tokens", "recoveries", "extra_turns", "recovery_tokens"),
        *("summaries", "summary_tokens", "net_saved_tokens"),
    ):
        connection.execute(f"ALTER TABLE metrics ADD COLUMN {column} INTEGER")
    for column in ("cost_before_usd", "net_saved_usd"):
        connection.execute(f"ALTER TABLE metrics ADD COLUMN {column} REAL")
        connection.execute(f"ALTER TABLE sessions ADD COLUMN {column} REAL")  # NULL until a price is known
    connection.execute("ALTER TABLE sessions ADD COLUMN net_saved_tokens INTEGER NOT NULL DEFAULT 0")
    connection.execute("PRAGMA user_version = 7")


def _8_parents(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE sessions ADD COLUMN parent TEXT NOT NULL DEFAULT ''")  # the session that it helps
    connection.execute("PRAGMA user_version = 8")


def _9_directories(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE sessions ADD COLUMN directory TEXT NOT NULL DEFAULT ''")  # where its agent works
    connection.execute("PRAGMA user_version = 9")


def _10_team(connection: sqlite3.Connection) -> None:
    for table in ("sessions", "metrics"):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN scope TEXT NOT NULL DEFAULT 'local'")
        connection.execute(f"ALTER TABLE {table} ADD COLUMN person TEXT NOT NULL DEFAULT ''")
        connection.execute(f"ALTER TABLE {table} ADD COLUMN team TEXT NOT NULL DEFAULT ''")
    connection.execute("CREATE INDEX sessions_by_scope ON sessions (scope, last_used)")
    connection.execute("CREATE INDEX metrics_by_scope ON metrics (scope, seq)")
    connection.execute(
        """CREATE TABLE person (
            name TEXT PRIMARY KEY,
            role TEXT NOT NULL,
            team TEXT NOT NULL,
            token_hash BLOB NOT NULL UNIQUE,  -- SHA-256; the token itself is kept nowhere
            created REAL NOT NULL,
            rotated REAL NOT NULL,
            revoked REAL
        )"""
    )
    connection.execute(
        """CREATE TABLE usage_day (
            day TEXT NOT NULL,  -- 2026-11-16, in UTC
            person TEXT NOT NULL,
            team TEXT NOT NULL,
            model TEXT NOT NULL,
            admitted INTEGER NOT NULL DEFAULT 0,  -- by a budget, before they were sent
            requests INTEGER NOT NULL DEFAULT 0,
            input_tokens INTEGER NOT NULL DEFAULT 0,
            cached_tokens INTEGER NOT NULL DEFAULT 0,
            output_tokens INTEGER NOT NULL DEFAULT 0,
            tokens_saved INTEGER NOT NULL DEFAULT 0,
            net_saved_tokens INTEGER NOT NULL DEFAULT 0,
            cost_usd REAL NOT NULL DEFAULT 0,
            net_saved_usd REAL NOT NULL DEFAULT 0,
            PRIMARY KEY (day, person, team, model)
        )"""
    )
    connection.execute(
        """INSERT INTO usage_day (day, person, team, model, requests, input_tokens, cached_tokens, output_tokens,
             tokens_saved, net_saved_tokens, cost_usd, net_saved_usd)
           SELECT date(at, 'unixepoch'), '', '', model, count(*), sum(ifnull(input_tokens, 0)),
             sum(ifnull(cached_tokens, 0)), sum(ifnull(output_tokens, 0)), sum(tokens_saved),
             sum(ifnull(net_saved_tokens, 0)), sum(ifnull(cost_usd, 0.0)), sum(ifnull(net_saved_usd, 0.0))
           FROM metrics GROUP BY 1, model"""
    )
    connection.execute(
        """CREATE TABLE audit_log (
            seq INTEGER PRIMARY KEY,
            at REAL NOT NULL,
            person TEXT NOT NULL,
            action TEXT NOT NULL,
            subject TEXT NOT NULL,
            detail TEXT NOT NULL
        )"""
    )
    connection.execute("PRAGMA user_version = 10")


def _11_logins(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE person ADD COLUMN subject TEXT NOT NULL DEFAULT ''")
    connection.execute(
        """CREATE TABLE login (
            id_hash BLOB PRIMARY KEY,  -- SHA-256 of what is in the browser's cookie
            began REAL NOT NULL,
            expires REAL NOT NULL,
            person TEXT NOT NULL,  -- '' until it is made
            detail TEXT NOT NULL
        )"""
    )
    connection.execute("CREATE INDEX login_by_end ON login (expires)")
    connection.execute("PRAGMA user_version = 11")


def _12_owners(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE compression_log ADD COLUMN scope TEXT")  # NULL: that of its session
    connection.execute("CREATE TABLE secret (name TEXT PRIMARY KEY, value BLOB NOT NULL)")
    connection.execute("PRAGMA user_version = 12")


def _13_provider_objects(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE provider_object (
            provider TEXT NOT NULL,
            id BLOB NOT NULL,  -- as the provider calls it: of a message batch, a stored response, a file
            scope TEXT NOT NULL,  -- whom it was made for
            created REAL NOT NULL,
            PRIMARY KEY (provider, id)
        )"""
    )
    connection.execute("CREATE INDEX provider_object_by_age ON provider_object (created)")
    connection.execute("PRAGMA user_version = 13")


def _14_cache_misses(connection: sqlite3.Connection) -> None:
    # Why a request missed the provider's prompt cache; NULL if it did not.
    columns = ("cache_miss TEXT", "cache_missed_tokens INTEGER", "cache_missed_usd REAL", "cache_miss_detail TEXT")
    for column in (*columns, "cache_life_s REAL"):
        connection.execute(f"ALTER TABLE metrics ADD COLUMN {column}")
    connection.execute("PRAGMA user_version = 14")


def _15_previews(connection: sqlite3.Connection) -> None:
    connection.execute("DROP VIEW masked_content")
    # In `ids` a space follows an id that is not the last, and no other character is below "!".
    connection.execute(
        """CREATE VIEW masked_content AS
           SELECT record.seq AS id, CAST(record.id AS TEXT) AS handle, lower(hex(text.hash)) AS content_hash,
                  text.frame AS original_content,  -- zstd-compressed
                  (SELECT CAST(pin.preview AS TEXT) FROM pin
                   WHERE pin.scope = record.scope AND pin.ids >= record.id AND pin.ids < CAST(record.id || '!' AS BLOB)
                   LIMIT 1) AS preview,  -- of tool results in chats; NULL for other texts
                  (SELECT file FROM pragma_database_list WHERE name = 'main') AS file_path,  -- that holds the original
                  record.created AS created_at
           FROM record JOIN text ON text.seq = record.text"""
    )
    connection.execute("PRAGMA user_version = 15")


def _16_money(connection: sqlite3.Connection) -> None:
    # Overhead, potential savings while observing, and the quota of a plan as JSON.
    for column in ("cache_lost_usd REAL", "overhead_usd REAL", "observed_tokens INTEGER", "observed_usd REAL"):
        connection.execute(f"ALTER TABLE metrics ADD COLUMN {column}")
    connection.execute("ALTER TABLE metrics ADD COLUMN quota TEXT")
    connection.execute("CREATE INDEX metrics_by_time ON metrics (at)")
    connection.execute("PRAGMA user_version = 16")


def _17_open_requests(connection: sqlite3.Connection) -> None:
    """Requests in progress that are not in the journal yet, with their estimated cost."""
    connection.execute(
        """CREATE TABLE open_request (
             id TEXT PRIMARY KEY,
             day TEXT NOT NULL,
             person TEXT NOT NULL,
             team TEXT NOT NULL,
             model TEXT NOT NULL,
             usd REAL NOT NULL,
             input_tokens INTEGER NOT NULL,
             expires REAL NOT NULL)"""
    )
    connection.execute("PRAGMA user_version = 17")


def _18_facts(connection: sqlite3.Connection) -> None:
    connection.execute(
        """CREATE TABLE fact (
            seq INTEGER PRIMARY KEY,
            scope BLOB NOT NULL,
            kind TEXT NOT NULL,
            key BLOB NOT NULL,
            hash BLOB NOT NULL,   -- SHA-256 of the value
            frame BLOB NOT NULL,  -- the value, zstd-compressed
            session BLOB NOT NULL,  -- with which it is deleted
            created REAL NOT NULL,
            last_used REAL NOT NULL,
            UNIQUE (scope, key, kind)
        )"""
    )
    connection.execute("CREATE INDEX fact_by_use ON fact (last_used)")
    connection.execute("ALTER TABLE pin RENAME TO decision")
    facts = """shown IS NOT NULL AND why IN
      ('memory', 'routed', 'answered', 'tool', 'renamed', 'open', 'owed', 'handed_over', 'claimed')"""
    connection.execute(
        f"""INSERT INTO fact (scope, kind, key, hash, frame, session, created, last_used)
            SELECT scope, why, place, hash, shown, session, created, last_used FROM decision WHERE {facts}"""  # noqa: S608
    )
    connection.execute(f"DELETE FROM decision WHERE {facts}")  # noqa: S608 - a fixed text
    connection.execute("PRAGMA user_version = 18")


def _19_people(connection: sqlite3.Connection) -> None:
    connection.execute("ALTER TABLE audit_log ADD COLUMN outcome TEXT NOT NULL DEFAULT 'ok'")
    connection.execute(
        """CREATE TABLE token (
            token_hash BLOB PRIMARY KEY,  -- SHA-256; the token itself is kept nowhere
            id TEXT NOT NULL,             -- by which its person ends it
            person TEXT NOT NULL,
            label TEXT NOT NULL,
            created REAL NOT NULL,
            expires REAL NOT NULL
        ) WITHOUT ROWID"""
    )
    connection.execute("PRAGMA user_version = 19")


def _20_settled(connection: sqlite3.Connection) -> None:
    """When another process settled a request, so that its own can correct the estimate; NULL while it is open."""
    connection.execute("ALTER TABLE open_request ADD COLUMN settled REAL")
    connection.execute("PRAGMA user_version = 20")


def _21_identities(connection: sqlite3.Connection) -> None:
    """People have ids that are never used again; those of before keep their name as id, so their rows stay theirs."""
    connection.execute("ALTER TABLE person ADD COLUMN id TEXT NOT NULL DEFAULT ''")
    connection.execute("UPDATE person SET id = name")
    connection.execute("CREATE UNIQUE INDEX person_by_id ON person (id)")
    connection.execute("ALTER TABLE audit_log ADD COLUMN person_id TEXT NOT NULL DEFAULT ''")
    connection.execute("UPDATE audit_log SET person_id = person WHERE person IN (SELECT name FROM person)")
    connection.execute(
        """CREATE TABLE erased (
            seq INTEGER PRIMARY KEY,
            person TEXT NOT NULL UNIQUE,  -- the id, for which nothing is written any more
            scopes TEXT NOT NULL,         -- that held their rows, with a space between them
            at REAL NOT NULL
        )"""
    )
    connection.execute(
        """CREATE TABLE project_memory (
            person TEXT PRIMARY KEY,  -- the id; '' without a team
            content BLOB NOT NULL,    -- JSON
            updated REAL
        )"""
    )
    connection.execute("PRAGMA user_version = 21")


def _22_all_previews(connection: sqlite3.Connection) -> None:
    """Texts of the gateway and the pruner have their preview in their note."""
    connection.execute("DROP VIEW masked_content")
    connection.execute(
        """CREATE VIEW masked_content AS
           SELECT record.seq AS id, CAST(record.id AS TEXT) AS handle, lower(hex(text.hash)) AS content_hash,
                  text.frame AS original_content,  -- zstd-compressed
                  coalesce(
                    (SELECT CAST(decision.preview AS TEXT) FROM decision
                     WHERE decision.scope = record.scope AND decision.ids >= record.id
                       AND decision.ids < CAST(record.id || '!' AS BLOB) LIMIT 1),
                    CASE WHEN json_valid(CAST(record.about AS TEXT))
                      THEN json_extract(CAST(record.about AS TEXT), '$.preview') END) AS preview,
                  (SELECT file FROM pragma_database_list WHERE name = 'main') AS file_path,  -- that holds the original
                  record.created AS created_at
           FROM record JOIN text ON text.seq = record.text"""
    )
    connection.execute("PRAGMA user_version = 22")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _1_originals,
    _2_sessions,
    _3_pins,
    _4_compressions,
    _5_cuts,
    _6_memory,
    _7_accounts,
    _8_parents,
    _9_directories,
    _10_team,
    _11_logins,
    _12_owners,
    _13_provider_objects,
    _14_cache_misses,
    _15_previews,
    _16_money,
    _17_open_requests,
    _18_facts,
    _19_people,
    _20_settled,
    _21_identities,
    _22_all_previews,
)
VERSION = len(MIGRATIONS)


def bring_up(connection: sqlite3.Connection) -> None:
    """Apply the missing steps in the caller's transaction, all or none; raise StoreUnavailable for a newer schema."""
    found = version(connection)
    if found > VERSION:
        raise StoreUnavailable(
            f"the store was written by a newer kimi-proxy (schema {found}, this one knows {VERSION}): "
            "upgrade this one, or set KIMI_PROXY_HOME to another directory"
        )
    for step in MIGRATIONS[found:]:
        step(connection)


def version(connection: sqlite3.Connection) -> int:
    (number,) = connection.execute("PRAGMA user_version").fetchone()
    return int(number)
