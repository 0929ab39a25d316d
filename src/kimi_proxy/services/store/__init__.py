"""Where originals, decisions and sessions are kept: `protocols` says what is promised, `sqlite` and `postgres` keep it.

Another database is one new folder beside them, and one line here.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from sqlite3 import sqlite_version
from typing import TYPE_CHECKING

from kimi_proxy.core import caller
from kimi_proxy.core.errors import AccessDenied, ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kimi_proxy.core.config import Config
    from kimi_proxy.services.store.protocols import Store

__all__ = ["file_usage", "open_store", "own_store", "sqlite_version"]


async def open_store(home: Path, *, ttl_s: float, max_bytes: int, url: str = "", timeout_s: float = 2.0) -> Store:
    """Return the store in the database at `url`, else under `home`, made if it is missing.

    One that is sick or away says so, and heals by itself. No call to it takes longer than `timeout_s`: it then raises
    StoreUnavailable. Raise ConfigError if what the database needs is not installed, or if a newer version
    has written its tables.
    """
    # `kimi-proxy status` looks at a file through this package without any of it.
    from kimi_proxy.services.store.sqlite.store import SqliteStore

    if url:
        return await _postgres(url, ttl_s, max_bytes, timeout_s)
    return await SqliteStore.open(home, ttl_s=ttl_s, max_bytes=max_bytes, timeout_s=timeout_s)


@asynccontextmanager
async def own_store(config: Config, store: Store) -> AsyncIterator[Store]:
    """Yield `store` as the person sees it whose token is in KIMI_PROXY_TOKEN; without a team that is all of it.

    For commands, which serve one person. Raise AccessDenied if the token is no one's.
    """
    if not config.team.enabled:
        yield store
        return
    # What a team needs takes as long to load as a whole command without one.
    from kimi_proxy.services.team import Team

    team = Team(config, store)
    try:
        token = config.token.get_secret_value() if config.token else ""
        who = await team.people.identify([token.encode()])
        if who is None:
            raise AccessDenied("this store is a team's: set KIMI_PROXY_TOKEN to your own token")
        with caller.acting(who):
            yield team.store
    finally:
        await team.close()


def file_usage(home: str, max_bytes: int) -> dict[str, object]:
    """Return what the store under `home` holds, without opening it. Raise OSError if its file cannot be read."""
    from kimi_proxy.services.store.sqlite.peek import usage

    return usage(f"{home}/store/originals.sqlite3", max_bytes)


async def _postgres(url: str, ttl_s: float, max_bytes: int, timeout_s: float) -> Store:
    try:
        from kimi_proxy.services.store.postgres.store import PostgresStore
    except ImportError as e:
        raise ConfigError(
            f"KIMI_PROXY_DATABASE_URL needs a package that is not installed ({e.name}): pip install 'kimi-proxy[team]'"
        ) from e
    return await PostgresStore.open(url, ttl_s=ttl_s, max_bytes=max_bytes, timeout_s=timeout_s)
