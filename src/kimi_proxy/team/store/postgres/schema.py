"""The tables in PostgreSQL, as numbered steps that are appended and never edited.

A step adds tables, indexes, and columns with a default, and removes nothing: during a rolling upgrade, servers of the
previous version still work with the tables. A renamed table keeps a view under its old name. Scopes, ids and previews
are BYTEA, because they contain text from callers and tools, including lone surrogates and NUL.
"""

from collections.abc import Sequence

from psycopg import AsyncConnection

from kimi_proxy.core.errors import StoreUnavailable

MIGRATING = 1802071401  # an advisory lock: "kimi"

_1_TABLES = """
CREATE TABLE text (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope BYTEA NOT NULL,
    hash BYTEA NOT NULL,   -- SHA-256 of the text
    frame BYTEA NOT NULL,  -- the text, zstd-compressed
    UNIQUE (scope, hash)
);
ALTER TABLE text ALTER COLUMN frame SET STORAGE EXTERNAL;  -- it is compressed already
CREATE TABLE record (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope BYTEA NOT NULL,
    id BYTEA NOT NULL,
    key BYTEA NOT NULL,
    text BIGINT NOT NULL REFERENCES text (seq),
    size BIGINT NOT NULL,  -- bytes that it takes of the budget
    about BYTEA NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    last_used DOUBLE PRECISION NOT NULL,
    UNIQUE (scope, id)
);
CREATE INDEX record_by_key ON record (scope, key, seq);
CREATE INDEX record_by_text ON record (text);
CREATE INDEX record_by_use ON record (last_used);
CREATE TABLE tombstone (
    scope BYTEA NOT NULL,
    id BYTEA NOT NULL,
    expired DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (scope, id)
);
CREATE INDEX tombstone_by_age ON tombstone (expired);
CREATE TABLE pin (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope BYTEA NOT NULL,
    place BYTEA NOT NULL,  -- fingerprint of where a part of a conversation stands, and of what it says
    why TEXT NOT NULL,
    hash BYTEA,            -- SHA-256 of what was shown; NULL if all was
    shown BYTEA,           -- zstd-compressed
    ids BYTEA NOT NULL,    -- of its originals, with a space between them
    preview BYTEA NOT NULL,
    session BYTEA NOT NULL,
    tokens_before BIGINT NOT NULL,
    tokens_after BIGINT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    last_used DOUBLE PRECISION NOT NULL,
    UNIQUE (scope, place)
);
CREATE INDEX pin_by_use ON pin (last_used);
CREATE INDEX pin_by_ids ON pin (scope, ids);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    last_used DOUBLE PRECISION NOT NULL,
    requests BIGINT NOT NULL DEFAULT 0,
    input_tokens BIGINT NOT NULL DEFAULT 0,
    cached_tokens BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    tokens_saved BIGINT NOT NULL DEFAULT 0,
    cost_usd DOUBLE PRECISION,
    cost_before_usd DOUBLE PRECISION,
    net_saved_tokens BIGINT NOT NULL DEFAULT 0,
    net_saved_usd DOUBLE PRECISION,
    parent TEXT NOT NULL DEFAULT '',
    directory TEXT NOT NULL DEFAULT '',
    memory_context TEXT,
    layout TEXT
);
CREATE INDEX sessions_by_use ON sessions (last_used, id);
CREATE TABLE metrics (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    api TEXT NOT NULL,
    tokens_estimated BIGINT NOT NULL,
    tokens_saved BIGINT NOT NULL,
    reasons TEXT NOT NULL,
    max_context BIGINT,
    status INTEGER NOT NULL,
    outcome TEXT NOT NULL,
    finish TEXT NOT NULL,
    input_tokens BIGINT,
    cached_tokens BIGINT,
    output_tokens BIGINT,
    cost_usd DOUBLE PRECISION,
    first_token_ms BIGINT,
    duration_ms BIGINT,
    system_tokens BIGINT,
    memory_tokens BIGINT,
    tools_tokens BIGINT,
    chat_tokens BIGINT,
    tokens_before BIGINT,
    tokens_after BIGINT,
    cache_lost_tokens BIGINT,
    recoveries BIGINT,
    extra_turns BIGINT,
    recovery_tokens BIGINT,
    summaries BIGINT,
    summary_tokens BIGINT,
    net_saved_tokens BIGINT,
    cost_before_usd DOUBLE PRECISION,
    net_saved_usd DOUBLE PRECISION
);
CREATE INDEX metrics_by_session ON metrics (session_id, seq);
CREATE INDEX metrics_by_time ON metrics (at);
CREATE TABLE compression_log (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    handle TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL,
    timestamp DOUBLE PRECISION NOT NULL,
    original_tokens BIGINT NOT NULL,
    compressed_tokens BIGINT NOT NULL,
    compression_ratio DOUBLE PRECISION NOT NULL,
    cut BIGINT NOT NULL,
    kept TEXT NOT NULL,
    fingerprint BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    frame BYTEA NOT NULL,
    original TEXT NOT NULL,
    summary_by TEXT NOT NULL,
    kind TEXT NOT NULL,
    automatic BOOLEAN NOT NULL,
    undone DOUBLE PRECISION
);
CREATE INDEX compression_by_session ON compression_log (session_id, id);
CREATE TABLE memory_segments (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id TEXT NOT NULL,
    request_id TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    kind TEXT NOT NULL,
    segments BIGINT NOT NULL,
    tokens BIGINT NOT NULL,
    preview TEXT NOT NULL
);
CREATE INDEX memory_segments_by_session ON memory_segments (session_id, kind, seq);
CREATE VIEW masked_content AS
    SELECT record.seq AS id, encode(record.id, 'escape') AS handle, encode(text.hash, 'hex') AS content_hash,
           text.frame AS original_content, record.created AS created_at
    FROM record JOIN text ON text.seq = record.text;
"""

# What servers that share the database know of each other. It is worth little after a crash, so it needs no log.
_2_REPLICAS = """
CREATE UNLOGGED TABLE sent_prefix (
    conversation BYTEA PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    life_s DOUBLE PRECISION NOT NULL,
    beginning BYTEA NOT NULL
);
CREATE INDEX sent_prefix_by_age ON sent_prefix (at);
CREATE UNLOGGED TABLE event_batch (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    origin TEXT NOT NULL,  -- the server that published them
    at DOUBLE PRECISION NOT NULL,
    events TEXT NOT NULL   -- a JSON array
);
CREATE INDEX event_batch_by_age ON event_batch (at);
"""

# The totals of the table `record`, in several rows: keeping an original adds to one of them.
_3_TOTALS = """
CREATE TABLE kept (shard INTEGER PRIMARY KEY, originals BIGINT NOT NULL, bytes BIGINT NOT NULL) WITH (fillfactor = 10);
INSERT INTO kept SELECT shard, 0, 0 FROM generate_series(0, 15) AS shard;
UPDATE kept SET (originals, bytes) = (SELECT count(*), coalesce(sum(size), 0) FROM record) WHERE shard = 0;
"""

_4_TEAM = """
ALTER TABLE sessions ADD COLUMN scope TEXT NOT NULL DEFAULT 'local', ADD COLUMN person TEXT NOT NULL DEFAULT '',
    ADD COLUMN team TEXT NOT NULL DEFAULT '';
ALTER TABLE metrics ADD COLUMN scope TEXT NOT NULL DEFAULT 'local', ADD COLUMN person TEXT NOT NULL DEFAULT '',
    ADD COLUMN team TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_by_scope ON sessions (scope, last_used, id);
CREATE INDEX metrics_by_scope ON metrics (scope, seq);
CREATE TABLE person (
    name TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    team TEXT NOT NULL,
    token_hash BYTEA NOT NULL UNIQUE,  -- SHA-256; the token itself is kept nowhere
    created DOUBLE PRECISION NOT NULL,
    rotated DOUBLE PRECISION NOT NULL,
    revoked DOUBLE PRECISION
);
CREATE TABLE usage_day (
    day TEXT NOT NULL,  -- 2026-11-16, in UTC
    person TEXT NOT NULL,
    team TEXT NOT NULL,
    model TEXT NOT NULL,
    admitted BIGINT NOT NULL DEFAULT 0,  -- by a budget, before they were sent
    requests BIGINT NOT NULL DEFAULT 0,
    input_tokens BIGINT NOT NULL DEFAULT 0,
    cached_tokens BIGINT NOT NULL DEFAULT 0,
    output_tokens BIGINT NOT NULL DEFAULT 0,
    tokens_saved BIGINT NOT NULL DEFAULT 0,
    net_saved_tokens BIGINT NOT NULL DEFAULT 0,
    cost_usd DOUBLE PRECISION NOT NULL DEFAULT 0,
    net_saved_usd DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (day, person, team, model)
);
INSERT INTO usage_day (day, person, team, model, requests, input_tokens, cached_tokens, output_tokens, tokens_saved,
    net_saved_tokens, cost_usd, net_saved_usd)
  SELECT to_char(to_timestamp(at) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), '', '', model, count(*),
    coalesce(sum(input_tokens), 0), coalesce(sum(cached_tokens), 0), coalesce(sum(output_tokens), 0),
    sum(tokens_saved), coalesce(sum(net_saved_tokens), 0), coalesce(sum(cost_usd), 0), coalesce(sum(net_saved_usd), 0)
  FROM metrics GROUP BY 1, model;
CREATE TABLE audit_log (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL,
    person TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
);
CREATE INDEX audit_log_by_time ON audit_log (at);
"""

# How far `kimi-proxy store copy` has come with each table of a file.
_5_COPIES = """
CREATE TABLE copied (
    source TEXT NOT NULL,
    name TEXT NOT NULL,
    last BIGINT NOT NULL,  -- number of the newest row that was copied
    rows BIGINT NOT NULL,
    PRIMARY KEY (source, name)
);
"""

# Equal requests that arrive at the same time get the same decisions, whichever servers they arrive at.
_6_EQUAL_REQUESTS = """
ALTER TABLE sent_prefix ADD COLUMN digest BYTEA NOT NULL DEFAULT '', ADD COLUMN cold BOOLEAN NOT NULL DEFAULT FALSE;
"""

# A leaky bucket for each provider, by the clock of the database.
_7_RATES = """
CREATE UNLOGGED TABLE rate (name TEXT PRIMARY KEY, level DOUBLE PRECISION NOT NULL, at TIMESTAMPTZ NOT NULL)
    WITH (fillfactor = 10);
"""

_8_LOGINS = """
ALTER TABLE person ADD COLUMN subject TEXT NOT NULL DEFAULT '';
CREATE TABLE login (
    id_hash BYTEA PRIMARY KEY,  -- SHA-256 of what is in the browser's cookie
    began DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION NOT NULL,
    person TEXT NOT NULL,  -- '' until it is made
    detail TEXT NOT NULL
);
CREATE INDEX login_by_end ON login (expires);
"""

# A compression without a scope was made by a server of the version before: it belongs to whom its session does.
_9_OWNERS = """
ALTER TABLE compression_log ADD COLUMN scope TEXT;
CREATE TABLE secret (name TEXT PRIMARY KEY, value BYTEA NOT NULL);
"""

_10_PROVIDER_OBJECTS = """
CREATE TABLE provider_object (
    provider TEXT NOT NULL,
    id BYTEA NOT NULL,  -- as the provider calls it: of a message batch, a stored response, a file
    scope TEXT NOT NULL,  -- whom it was made for
    created DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (provider, id)
);
CREATE INDEX provider_object_by_age ON provider_object (created);
"""

_11_CACHE_MISSES = """
ALTER TABLE metrics ADD COLUMN cache_miss TEXT, ADD COLUMN cache_missed_tokens BIGINT,
    ADD COLUMN cache_missed_usd DOUBLE PRECISION, ADD COLUMN cache_miss_detail TEXT,
    ADD COLUMN cache_life_s DOUBLE PRECISION;
"""

_12_PREVIEWS = """
CREATE OR REPLACE VIEW masked_content AS
    SELECT record.seq AS id, encode(record.id, 'escape') AS handle, encode(text.hash, 'hex') AS content_hash,
           text.frame AS original_content, record.created AS created_at,
           (SELECT encode(pin.preview, 'escape') FROM pin
            WHERE pin.scope = record.scope AND pin.ids >= record.id AND pin.ids < record.id || '!'::bytea
            LIMIT 1) AS preview,  -- of tool results in chats; NULL for other texts
           NULL::text AS file_path  -- the original is in no file
    FROM record JOIN text ON text.seq = record.text;
"""

_13_MONEY = """
ALTER TABLE metrics ADD COLUMN cache_lost_usd DOUBLE PRECISION, ADD COLUMN overhead_usd DOUBLE PRECISION,
    ADD COLUMN observed_tokens BIGINT, ADD COLUMN observed_usd DOUBLE PRECISION, ADD COLUMN quota TEXT;
"""

# Requests in progress that are not in the journal yet, with their estimated cost.
_14_OPEN_REQUESTS = """
CREATE TABLE open_request (
    id TEXT PRIMARY KEY,
    day TEXT NOT NULL,
    person TEXT NOT NULL,
    team TEXT NOT NULL,
    model TEXT NOT NULL,
    usd DOUBLE PRECISION NOT NULL,
    input_tokens BIGINT NOT NULL,
    expires DOUBLE PRECISION NOT NULL
);
"""

# Decisions and facts were one table, which servers of the version before read and write as the view `pin`.
_15_FACTS = """
CREATE TABLE fact (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope BYTEA NOT NULL,
    kind TEXT NOT NULL,
    key BYTEA NOT NULL,
    hash BYTEA NOT NULL,   -- SHA-256 of the value
    frame BYTEA NOT NULL,  -- the value, zstd-compressed
    session BYTEA NOT NULL,  -- with which it is deleted
    created DOUBLE PRECISION NOT NULL,
    last_used DOUBLE PRECISION NOT NULL,
    UNIQUE (scope, key, kind)
);
CREATE INDEX fact_by_use ON fact (last_used);
ALTER TABLE pin RENAME TO decision;
WITH moved AS (DELETE FROM decision WHERE shown IS NOT NULL AND why IN
    ('memory', 'routed', 'answered', 'tool', 'renamed', 'open', 'owed', 'handed_over', 'claimed') RETURNING *)
  INSERT INTO fact (scope, kind, key, hash, frame, session, created, last_used)
  SELECT scope, why, place, hash, shown, session, created, last_used FROM moved;
CREATE VIEW pin AS
    SELECT seq, scope, place, why, hash, shown, ids, preview, session, tokens_before, tokens_after, created, last_used
    FROM decision
    UNION ALL SELECT -seq, scope, key, kind, hash, frame, '', '', session, 0, 0, created, last_used FROM fact;
CREATE FUNCTION change_pin() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM decision WHERE seq = OLD.seq;
        DELETE FROM fact WHERE seq = -OLD.seq;
        RETURN OLD;
    ELSIF TG_OP = 'UPDATE' THEN
        UPDATE decision SET last_used = NEW.last_used WHERE seq = OLD.seq;
        UPDATE fact SET last_used = NEW.last_used WHERE seq = -OLD.seq;
    ELSIF NEW.shown IS NOT NULL AND NEW.why IN
        ('memory', 'routed', 'answered', 'tool', 'renamed', 'open', 'owed', 'handed_over', 'claimed') THEN
        INSERT INTO fact (scope, kind, key, hash, frame, session, created, last_used)
        VALUES (NEW.scope, NEW.why, NEW.place, NEW.hash, NEW.shown, NEW.session, NEW.created, NEW.last_used)
            ON CONFLICT DO NOTHING;
    ELSE
        INSERT INTO decision (scope, place, why, hash, shown, ids, preview, session, tokens_before, tokens_after,
            created, last_used)
        VALUES (NEW.scope, NEW.place, NEW.why, NEW.hash, NEW.shown, NEW.ids, NEW.preview, NEW.session,
            NEW.tokens_before, NEW.tokens_after, NEW.created, NEW.last_used) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER change_pin INSTEAD OF INSERT OR UPDATE OR DELETE ON pin FOR EACH ROW EXECUTE FUNCTION change_pin();
"""

_16_PEOPLE = """
ALTER TABLE audit_log ADD COLUMN outcome TEXT NOT NULL DEFAULT 'ok';
CREATE TABLE token (
    token_hash BYTEA PRIMARY KEY,  -- SHA-256; the token itself is kept nowhere
    id TEXT NOT NULL UNIQUE,       -- by which its person ends it
    person TEXT NOT NULL,
    label TEXT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION NOT NULL
);
CREATE INDEX token_by_person ON token (person);
"""

# Objects that no text refers to: one that is being written, and one whose text was deleted.
_17_OBJECTS = """
CREATE TABLE stray_object (
    name TEXT PRIMARY KEY,
    due DOUBLE PRECISION NOT NULL  -- when it may be deleted, by the clock of the database
);
CREATE INDEX stray_object_by_time ON stray_object (due);
CREATE FUNCTION leave_object() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- Whoever has just read the name still gets the object.
    INSERT INTO stray_object VALUES (convert_from(substring(OLD.frame FROM 5), 'UTF8'),
        extract(epoch FROM clock_timestamp()) + 60) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER leave_object AFTER DELETE ON text FOR EACH ROW
    WHEN (octet_length(OLD.frame) < 100 AND substring(OLD.frame FROM 1 FOR 4) = 'KPO1')
    EXECUTE FUNCTION leave_object();
CREATE TRIGGER replace_object AFTER UPDATE OF frame ON text FOR EACH ROW
    WHEN (octet_length(OLD.frame) < 100 AND substring(OLD.frame FROM 1 FOR 4) = 'KPO1' AND OLD.frame <> NEW.frame)
    EXECUTE FUNCTION leave_object();
"""

# When another server settled a request, so that its own can correct the estimate; NULL while it is open.
_18_SETTLED = """
ALTER TABLE open_request ADD COLUMN settled DOUBLE PRECISION;
"""

# People have ids that are never used again; those of before keep their name as id, so their rows stay theirs.
# Servers of the version before add people without naming an id.
_19_IDENTITIES = """
ALTER TABLE person ADD COLUMN id TEXT NOT NULL DEFAULT 'per_' || replace(gen_random_uuid()::text, '-', '');
UPDATE person SET id = name;
CREATE UNIQUE INDEX person_by_id ON person (id);
ALTER TABLE audit_log ADD COLUMN person_id TEXT NOT NULL DEFAULT '';
UPDATE audit_log SET person_id = person WHERE person IN (SELECT name FROM person);
CREATE TABLE erased (
    seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    person TEXT NOT NULL UNIQUE,  -- the id, for which nothing is written any more
    scopes TEXT NOT NULL,         -- that held their rows, with a space between them
    at DOUBLE PRECISION NOT NULL
);
CREATE TABLE project_memory (
    person TEXT PRIMARY KEY,  -- the id; '' without a team
    content BYTEA NOT NULL,   -- JSON
    updated DOUBLE PRECISION
);
"""

MIGRATIONS = (
    _1_TABLES,
    _2_REPLICAS,
    _3_TOTALS,
    _4_TEAM,
    _5_COPIES,
    _6_EQUAL_REQUESTS,
    _7_RATES,
    _8_LOGINS,
    _9_OWNERS,
    _10_PROVIDER_OBJECTS,
    _11_CACHE_MISSES,
    _12_PREVIEWS,
    _13_MONEY,
    _14_OPEN_REQUESTS,
    _15_FACTS,
    _16_PEOPLE,
    _17_OBJECTS,
    _18_SETTLED,
    _19_IDENTITIES,
)


class SchemaTooNew(StoreUnavailable):
    """Another server of a newer version has brought the tables further than this one knows."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(
            f"the database was written by a newer kimi-proxy (schema {found}, this one knows {known}): "
            "upgrade this one, or name another database in KIMI_PROXY_DATABASE_URL"
        )


async def bring_up(connection: AsyncConnection[tuple[object, ...]], migrations: Sequence[str] = MIGRATIONS) -> None:
    """Apply the missing steps, all or none, once: servers that start at once wait for the first of them.

    Raise SchemaTooNew if there are steps that this version does not know.
    """
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,))
        await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
        cursor = await connection.execute("SELECT coalesce(max(version), 0) FROM schema_version")
        row = await cursor.fetchone()
        found = int(str(row[0])) if row else 0
        if found > len(migrations):
            raise SchemaTooNew(found, len(migrations))
        for number, step in enumerate(migrations[found:], found + 1):
            await connection.execute(step.encode())
            await connection.execute("INSERT INTO schema_version VALUES (%s)", (number,))
