"""Storage of originals, decisions and sessions: `protocols` is the contract, `sqlite` and `postgres` implement it.

Another database is one new folder beside them, and one line here.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from sqlite3 import sqlite_version
from typing import TYPE_CHECKING

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kimi_proxy.core.config import Config, StoreSettings
    from kimi_proxy.services.store.protocols import Store

__all__ = ["file_usage", "open_store", "own_store", "shortened_sessions", "sqlite_version"]


async def open_store(config: Config) -> Store:
    """Return the configured store: in its database, otherwise under the home directory, created if it is missing.

    A store that fails reports it, and recovers automatically. No call takes longer than `store.timeout_ms`: it then
    raises StoreUnavailable. Raise ConfigError if the database's driver is not installed, or if a newer version has
    written its tables.
    """
    # `kimi-proxy status` looks at a file through this package without any of it.
    from kimi_proxy.services.store.sqlite.store import SqliteStore

    ttl_s, max_bytes = config.mcp_pruner.prune_id_ttl_s, config.store.max_bytes
    timeout_s = config.store.timeout_ms / 1000
    if config.store.url:
        return await _postgres(config.store, ttl_s)
    return await SqliteStore.open(config.home, ttl_s=ttl_s, max_bytes=max_bytes, timeout_s=timeout_s)


@asynccontextmanager
async def own_store(config: Config) -> AsyncIterator[tuple[Store, Caller]]:
    """Yield the store and whom a command works for: the person of KIMI_PROXY_TOKEN in a team, else LOCAL.

    Raise AccessDenied if the token is no one's.
    """
    async with AsyncExitStack() as alive:
        store = await open_store(config)
        alive.push_async_callback(store.close)
        if not config.team.enabled:
            yield store, LOCAL
            return
        # The team's dependencies take as long to import as a whole command without a team.
        from kimi_proxy.team.team import Team

        team = Team(config, store)
        alive.push_async_callback(team.close)
        yield store, await team.people.of_token(config.token)


def file_usage(home: str, max_bytes: int) -> dict[str, object]:
    """Return the size of the store under `home` without opening it. Raise OSError if its file cannot be read."""
    from kimi_proxy.services.store.sqlite.peek import usage

    return usage(f"{home}/store/originals.sqlite3", max_bytes)


def shortened_sessions(home: str) -> frozenset[str]:
    """Return the names of the sessions of which requests were shortened, from the file under `home`.

    The file is not opened for writing, and none is made. Raise OSError if it cannot be read.
    """
    from kimi_proxy.services.store.sqlite.peek import shortened_sessions

    return shortened_sessions(f"{home}/store/originals.sqlite3")


async def _postgres(settings: StoreSettings, ttl_s: float) -> Store:
    try:
        from kimi_proxy.team.store.postgres.database import Pooling
        from kimi_proxy.team.store.postgres.store import PostgresStore
    except ImportError as e:
        raise ConfigError(
            f"KIMI_PROXY_DATABASE_URL needs a package that is not installed ({e.name}): pip install 'kimi-proxy[team]'"
        ) from e
    return await PostgresStore.open(
        settings.url,
        ttl_s=ttl_s,
        max_bytes=settings.max_bytes,
        timeout_s=settings.timeout_ms / 1000,
        pooling=Pooling(settings.pool_size, settings.transaction_pooler, settings.listen_url),
    )
