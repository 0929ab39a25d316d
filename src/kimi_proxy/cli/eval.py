"""How well lines are chosen in one's own repository, beside plain rankers and other pruners."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy import __version__
from kimi_proxy.cli.streams import remark, write, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kimi_proxy.features.evaluation.case import Case
    from kimi_proxy.features.evaluation.judging import Judged
    from kimi_proxy.features.evaluation.report import Report

MIN_CASES = 5


def evaluate(
    repo: Annotated[Path, typer.Argument(metavar="REPO", help="A local git repository.")] = Path(),
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many cases to mine, at most.")] = 120,
    seed: Annotated[int, typer.Option(help="The same seed gives the same cases and figures.")] = 7,
    command: Annotated[
        str, typer.Option("--cmd", metavar="COMMAND", help="A command that fails in REPO: its log makes cases too.")
    ] = "",
    urls: Annotated[
        list[str] | None,
        typer.Option("--url", metavar="URL", help="Another pruner to judge, by its /prune or /rpc. May be repeated."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write a report with plots, as one HTML file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead, for programs.")] = False,
) -> None:
    """Judge how well lines are chosen, on questions mined from a git repository.

    A commit's message and the lines it changed, documentation and the code under it, a heading and its section, and
    with --cmd a failure and its report: what share of the lines that answer stays, when only 50, 30 or 15 % of the
    tokens do? Nothing leaves the machine, except to an address given with --url.

    Example: kimi-proxy eval . --html report.html
    """
    from kimi_proxy.features.evaluation.page import as_html
    from kimi_proxy.features.evaluation.report import as_json as told
    from kimi_proxy.features.evaluation.report import as_text

    if html is not None:
        _check_place(html)
    report = _report(repo, limit, seed, command, urls or [])
    if html is not None:
        _write_page(html, as_html(report))
        remark(f"the report is in {html}")
    write_json(told(report)) if as_json else write(as_text(report))


def _check_place(html: Path) -> None:
    """Before the work of minutes, rather than after it."""
    if html.is_dir() or not html.parent.is_dir():
        problem = "it is a directory" if html.is_dir() else f"there is no directory {html.parent}"
        raise typer.BadParameter(f"cannot write {html}: {problem}", param_hint="--html")


def _write_page(html: Path, page: str) -> None:
    try:
        html.write_text(page, "utf-8")
    except OSError as e:
        raise typer.BadParameter(f"cannot write {html}: {e.strerror}", param_hint="--html") from e


def _report(repo: Path, limit: int, seed: int, command: str, urls: list[str]) -> Report:
    from kimi_proxy.features.evaluation.report import Report
    from kimi_proxy.proxy.git import Repository
    from kimi_proxy.services.mining import mine

    repository = Repository(repo)
    with _bar() as tell:
        cases = mine(repository, limit, seed, lambda what: tell(what, 0, 0)) + _failures(command, repo, tell)
        if not cases:
            raise typer.BadParameter("holds no commit, documentation or section to ask about", param_hint="REPO")
        judged = _judged(cases, urls, tell)
    if len(cases) < MIN_CASES:
        remark(f"only {len(cases)} cases were found: these figures say little")
    return Report(repository.name, repository.head, __version__, seed, judged)


def _failures(command: str, repo: Path, tell: Tell) -> list[Case]:
    from kimi_proxy.services.mining import from_command

    if not command:
        return []
    tell(f"running {command}", 0, 0)
    return from_command(command, repo)


def _judged(cases: list[Case], urls: list[str], tell: Tell) -> list[Judged]:
    from kimi_proxy.proxy.pruner_endpoint import PrunerEndpoint
    from kimi_proxy.services.evaluation import contestants, evaluate

    endpoints = [PrunerEndpoint(url) for url in urls]
    try:
        against = contestants(endpoints, urls)
        judged: list[Judged] = []
        for done in evaluate(cases, against):
            judged.append(done)
            tell("judging", len(judged), len(cases) * len(against))
        return judged
    finally:
        for endpoint in endpoints:
            endpoint.close()


@contextmanager
def _bar() -> Iterator[Tell]:
    """A bar for people who watch, nothing for others: `tell(what, done, of)` moves it."""
    if not sys.stderr.isatty():
        yield lambda what, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, of: bar.update(task, description=what, completed=done, total=of or None)


if TYPE_CHECKING:
    Tell = Callable[[str, int, int], None]
