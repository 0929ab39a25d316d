"""Opens the store that the settings name, and says whom a command works for."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kimi_proxy.core.config import Config, StoreSettings
    from kimi_proxy.services.store.protocols import Store
    from kimi_proxy.team.team import Team


async def open_store(config: Config) -> Store:
    """Return the configured store: in its database, otherwise under the home directory, created if it is missing.

    A store that fails reports it, and recovers automatically. No call takes longer than `store.timeout_ms`: it then
    raises StoreUnavailable. Raise ConfigError if the database's driver is not installed, or if a newer version has
    written its tables.
    """
    ttl_s = config.mcp_pruner.prune_id_ttl_s
    if config.store.url:
        return await _postgres(config.store, ttl_s)
    from kimi_proxy.services.store.sqlite.store import SqliteStore

    timeout_s = config.store.timeout_ms / 1000
    return await SqliteStore.open(config.home, ttl_s=ttl_s, max_bytes=config.store.max_bytes, timeout_s=timeout_s)


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
        team = team_of(config, store)
        alive.push_async_callback(team.close)
        yield store, await team.people.of_token(config.token)


def team_of(config: Config, store: Store) -> Team:
    """Return the team of a store, for a command that serves no requests."""
    # The team's dependencies take as long to import as a whole command without a team.
    from kimi_proxy.assembly.addons import AddonFiles
    from kimi_proxy.team.team import Team

    return Team(config, store, AddonFiles(config))


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
