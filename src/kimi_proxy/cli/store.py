"""`kimi-proxy store copy`: move what is kept from one machine's file into a team's database."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy.cli.console import JsonOption, remark, write, write_json
from kimi_proxy.core.errors import ConfigError

if TYPE_CHECKING:
    from kimi_proxy.services.store.copy import CopyProgress

store = typer.Typer(
    name="store", no_args_is_help=True, rich_markup_mode=None, help="Move what is kept into another database."
)


@store.callback()
def about() -> None:
    """Move what is kept into another database."""


@store.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="SQLITE_URL", help="sqlite:///PATH of the file, or its home.")],
    target: Annotated[str, typer.Argument(metavar="POSTGRES_URL", help="postgresql://HOST/NAME, with its password.")],
    as_json: JsonOption = False,
) -> None:
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
        raise typer.BadParameter("it begins with postgresql://", param_hint="POSTGRES_URL")
    with _bar() as progress:
        done = copy_store(sqlite_file(source), target, progress)
    if as_json:
        write_json({"copied": done.copied, "verified": done.verified, "damaged": list(done.damaged)})
    else:
        for name, rows in done.copied.items():
            write(f"{name:<16} {rows:>10}\n")
        write(f"{done.verified} originals are the same in both\n")
    if done.damaged:
        remark(f"the file itself cannot give back {len(done.damaged)} of its originals: {', '.join(done.damaged[:5])}")


@contextmanager
def _bar() -> Iterator[CopyProgress]:
    """Yield what moves a progress bar, for people who watch; for others it does nothing."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
