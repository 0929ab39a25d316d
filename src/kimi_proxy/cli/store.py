"""`kimi-proxy store`: move what is kept from one machine's file into a team's database, and encrypt it."""

from __future__ import annotations

import click

from kimi_proxy.cli.console import CommandGroup, json_option, remark, write, write_json
from kimi_proxy.cli.progress import progress_bar
from kimi_proxy.core.errors import ConfigError


@click.group(cls=CommandGroup)
def store() -> None:
    """Move what is kept into another database, or encrypt it."""


@store.command()
@json_option
def encrypt(as_json: bool) -> None:
    """Encrypt what is kept with the newest key of KIMI_PROXY_STORE_KEY or store.key_command.

    Run it after a key was set or put before the older ones; servers go on meanwhile. Older keys can go when it is done.
    """
    import asyncio

    from kimi_proxy.cli.console import log_errors_only, server_config
    from kimi_proxy.services.store import open_store

    log_errors_only()
    config = server_config()

    async def run() -> int:
        opened = await open_store(config)
        try:
            return await opened.reencrypt()
        finally:
            await opened.close()

    count = asyncio.run(run())
    if as_json:
        write_json({"encrypted": count})
    else:
        remark(f"{count:,} texts are encrypted by the newest key now; all others were already")


@store.command()
@click.argument("source", metavar="SQLITE_URL", help="sqlite:///PATH of the file, or its home.")
@click.argument("target", metavar="POSTGRES_URL", help="postgresql://HOST/NAME, with its password.")
@json_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy a store into PostgreSQL, and read every original back to compare its hash.

    Ids that were given out work there too. End the server that writes the file first. A copy that was interrupted goes
    on where it was; what is there already is copied once.
    """
    try:
        from kimi_proxy.services.store.copy import copy_store, sqlite_file
    except ImportError as e:
        raise ConfigError(
            f"PostgreSQL needs a package that is not installed ({e.name}): pip install 'kimi-proxy[team]'"
        ) from e
    if not target.startswith(("postgresql://", "postgres://")):
        raise click.BadParameter("it begins with postgresql://", param_hint="POSTGRES_URL")
    with progress_bar() as progress:
        done = copy_store(sqlite_file(source), target, progress)
    if as_json:
        write_json({"copied": done.copied, "verified": done.verified, "damaged": list(done.damaged)})
    else:
        for name, rows in done.copied.items():
            write(f"{name:<16} {rows:>10}\n")
        write(f"{done.verified} originals are the same in both\n")
    if done.damaged:
        remark(f"the file itself cannot give back {len(done.damaged)} of its originals: {', '.join(done.damaged[:5])}")
