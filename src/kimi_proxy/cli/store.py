"""`kimi-proxy store`: copy one machine's store into a team's database."""

from __future__ import annotations

import click

from kimi_proxy.cli.console import CommandGroup, json_option, remark, write, write_json
from kimi_proxy.cli.progress import progress_bar
from kimi_proxy.core.errors import ConfigError


@click.group(cls=CommandGroup)
def store() -> None:
    """Copy the store into another database."""


@store.command()
@click.argument("source", metavar="SQLITE_URL", help="sqlite:///PATH, the file's path, or its home folder.")
@click.argument("target", metavar="POSTGRES_URL", help="postgresql://HOST/NAME, with its password.")
@json_option
def copy(source: str, target: str, as_json: bool) -> None:
    """Copy a store into PostgreSQL, and verify every original by its hash.

    Existing ids and people's tokens keep working there. Stop the server that uses the file first. Running the command
    again resumes an interrupted copy; rows that exist already are not copied twice.
    """
    try:
        from kimi_proxy.team.store.copy import copy_store, sqlite_file
    except ImportError as e:
        raise ConfigError(
            f"PostgreSQL needs a package that is not installed ({e.name}): pip install 'kimi-proxy[team]'"
        ) from e
    if not target.startswith(("postgresql://", "postgres://")):
        raise click.BadParameter("the address must begin with postgresql://", param_hint="POSTGRES_URL")
    with progress_bar() as progress:
        done = copy_store(sqlite_file(source), target, progress)
    if as_json:
        write_json({"copied": done.copied, "verified": done.verified, "damaged": list(done.damaged)})
    else:
        for name, rows in done.copied.items():
            write(f"{name:<16} {rows:>10}\n")
        write(f"{done.verified} originals are identical in both\n")
    if done.damaged:
        remark(
            f"the file has {len(done.damaged)} damaged originals, which were not copied: {', '.join(done.damaged[:5])}"
        )
