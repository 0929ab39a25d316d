"""Project memory in a database: one text or JSON value for each person."""

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.services.store.protocols import StoredMemory
from kimi_proxy.services.store.sql import ERASED, NOT_ERASED, D, SqlTables, erased_among

_REPLACE = "UPDATE SET content = excluded.content, updated = excluded.updated"


class SqlMemory(SqlTables[D]):
    async def load(self, who: Caller) -> StoredMemory | None:
        rows = await self.database.rows(
            "SELECT content, updated FROM project_memory WHERE person = ?", (who.person_id,)
        )
        return StoredMemory(*rows[0]) if rows else None  # type: ignore[arg-type]

    async def save(self, who: Caller, memory: StoredMemory, *, replaces: bool = True) -> None:
        await self.database.change(
            f"""INSERT INTO project_memory (person, content, updated) SELECT ?, ?, ? WHERE {NOT_ERASED}
                ON CONFLICT (person) DO {_REPLACE if replaces else "NOTHING"} RETURNING 1""",
            (who.person_id, memory.content, memory.updated, who.person_id),
        )
        if await self.database.rows(*erased_among([who.person_id])):
            raise StoreUnavailable(ERASED)

    async def people(self) -> frozenset[str]:
        return frozenset(str(person) for (person,) in await self.database.rows("SELECT person FROM project_memory"))

    async def delete(self, person: str) -> None:
        await self.database.change("DELETE FROM project_memory WHERE person = ? RETURNING 1", (person,))
