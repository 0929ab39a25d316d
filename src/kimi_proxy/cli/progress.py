"""A bar on standard error while something long runs, for people who watch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

LARGE_CHARS = 256 * 1024


@contextmanager
def progress(what: str, chars: int) -> Iterator[None]:
    """Show that `what` goes on, if it is large and somebody is there to see."""
    if chars < LARGE_CHARS or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(f"{what} {chars:,} characters", total=None)
        yield
