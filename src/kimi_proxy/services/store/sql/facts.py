"""Facts in a database: what later requests of a conversation have to know, such as its session or its model."""

from collections.abc import Collection, Mapping, Sequence

from kimi_proxy.core.cache import in_batches
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.lines import encode_text
from kimi_proxy.services.store.protocols import FactKind
from kimi_proxy.services.store.sql import CompressedText, D, SqlTables, compress, decompress, marks, one_of

# ruff: noqa: S608 - every name that is put into a statement is in this file

AT_ONCE = 500  # keys in a statement
DAY_S = 86_400.0

_FACT = "scope, kind, key, hash, frame, session, created, last_used"


class SqlFacts(SqlTables[D]):
    """Facts unused for `ttl_s` are deleted by `sweep`, which also saves last-used times."""

    def __init__(self, database: D, ttl_s: float) -> None:
        super().__init__(database)
        self._ttl_s = ttl_s
        self._used: dict[str, set[bytes]] = {}  # keys by scope, of uses that are not written yet

    async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        # A use is written once a day, or twice within a short ttl: not with every request.
        stale = self.database.clock.look().earliest - min(DAY_S, self._ttl_s / 2)
        found: dict[bytes, bytes] = {}
        for some in in_batches(list(keys), AT_ONCE):
            rows = await self.database.rows(
                f"""SELECT key, hash, frame, last_used FROM fact
                   WHERE scope = ? AND kind = ? AND key IN ({marks(len(some))})""",
                (encode_text(who.scope), kind, *some),
            )
            for key, hashed, frame, last_used in rows:
                found[key] = decompress(CompressedText(hashed, frame), self.database.cipher)  # type: ignore[index, arg-type]
                if last_used < stale:  # type: ignore[operator]
                    self._used.setdefault(who.scope, set()).add(key)  # type: ignore[arg-type]
        return found

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str = ""
    ) -> Mapping[bytes, bytes]:
        scope, now, added = encode_text(who.scope), self.database.clock.look().latest, set[object]()
        ends = encode_text(session), now, now
        for some in in_batches(sorted(facts), AT_ONCE):  # in one order, so that no two servers wait for each other
            compressed = [(key, compress(facts[key], self.database.cipher)) for key in some]
            rows = await self.database.change(
                f"""INSERT INTO fact ({_FACT}) VALUES {", ".join([f"({marks(8)})"] * len(some))}
                   ON CONFLICT DO NOTHING RETURNING key""",
                tuple(v for key, text in compressed for v in (scope, kind, key, text.hash, text.frame, *ends)),
            )
            added |= {key for (key,) in rows}
        return {**facts, **await self.get(who, kind, facts.keys() - added)}

    async def delete(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> None:
        for some in in_batches(list(keys), AT_ONCE):
            await self.database.change(
                f"DELETE FROM fact WHERE scope = ? AND kind = ? AND key IN ({marks(len(some))}) RETURNING 1",
                (encode_text(who.scope), kind, *some),
            )

    async def forget_sessions(self, who: Caller, sessions: Collection[str] | None) -> None:
        for some in [None] if sessions is None else in_batches(sorted(sessions), AT_ONCE):
            await self.database.change(
                f"""DELETE FROM fact WHERE {one_of("scope", who.scopes)} AND session <> ? AND {one_of("session", some)}
                   RETURNING 1""",
                (*map(encode_text, who.scopes), b"", *map(encode_text, some or ())),
            )

    async def keys(self, who: Caller, kind: FactKind, limit: int) -> Sequence[bytes]:
        statement = "SELECT key FROM fact WHERE scope = ? AND kind = ? LIMIT ?"
        rows = await self.database.rows(statement, (encode_text(who.scope), kind, limit))
        return [key for (key,) in rows if isinstance(key, bytes)]

    async def sweep(self) -> None:
        """Write down which facts were used, and delete those that have expired."""
        moment, used, self._used = self.database.clock.look(), self._used, {}
        for scope, keys in used.items():
            for some in in_batches(list(keys), AT_ONCE):
                await self.database.change(
                    f"UPDATE fact SET last_used = ? WHERE scope = ? AND key IN ({marks(len(some))}) RETURNING 1",
                    (moment.latest, encode_text(scope), *some),
                )
        expired = "SELECT seq FROM fact WHERE last_used < ? ORDER BY last_used LIMIT ?"
        delete = f"DELETE FROM fact WHERE seq IN ({expired}) RETURNING 1"
        while len(await self.database.change(delete, (moment.earliest - self._ttl_s, AT_ONCE))) == AT_ONCE:
            pass
