"""Which team tables belong to a store."""

from kimi_proxy.services.store.protocols import Store
from kimi_proxy.services.store.sqlite.store import SqliteStore
from kimi_proxy.team.records import TeamTables
from kimi_proxy.team.store.sqlite import SqliteTeam


def team_tables(store: Store) -> TeamTables:
    """Return the tables of the people who share a store."""
    if isinstance(store, SqliteStore):
        return SqliteTeam(store.database)
    from kimi_proxy.team.store.postgres.store import PostgresStore  # its driver need not be installed

    if isinstance(store, PostgresStore):
        return store.team
    raise TypeError(f"{type(store).__name__} has no tables for a team")
