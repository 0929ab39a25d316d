"""`kimi-proxy report`: costs and savings, read from the store; no server has to run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli.console import json_option, write, write_json
from kimi_proxy.cli.pruning import with_store
from kimi_proxy.core.errors import SessionNotFound

if TYPE_CHECKING:
    from kimi_proxy.core.caller import Caller
    from kimi_proxy.features.accounting import SavingsLine
    from kimi_proxy.services.store.protocols import Store
    from kimi_proxy.services.store.usage import UsageSum


_AGO = re.compile(r"(\d{1,5})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@click.command()
@click.option("--since", default="", metavar="WHEN", help="Only requests after this: 30m, 24h, 7d, 2w, or 2026-11-01.")
@click.option(
    "--session", default="", metavar="SESSION", help="Only this session: its id, or the name given by its client."
)
@click.option(
    "--by", default="", metavar="COLUMNS", help="Show usage by person, team, model, day; separate several with commas."
)
@json_option
@click.option(
    "--csv", "as_csv", is_flag=True, help="Print CSV: a line for each session and model, or for each row of --by."
)
def report(since: str, session: str, by: str, as_json: bool, as_csv: bool) -> None:
    """Print what requests cost, what they would have cost without kimi-proxy, and the net savings.

    Lost cache reads, recoveries and summaries are subtracted; a negative figure is a loss. See docs/accounting.md.
    """
    from kimi_proxy.features import accounting

    if as_json and as_csv:
        raise click.BadParameter("choose either --json or --csv", param_hint="--csv")
    moment = moment_of(since)
    if by:
        if session:
            raise click.BadParameter(
                "--by covers all sessions; it cannot be combined with --session", param_hint="--session"
            )
        _print_usage(by, moment, as_json, as_csv)
        return
    lines = with_store(lambda store, who: _lines(store, who, moment, session))
    since_text = moment.isoformat(timespec="seconds").replace("+00:00", "Z") if moment else None
    if as_json:
        write_json(accounting.as_json(lines, since_text))
    else:
        write(accounting.as_csv(lines) if as_csv else accounting.as_text(lines, since_text))


def _print_usage(by: str, since: datetime | None, as_json: bool, as_csv: bool) -> None:
    """Print usage; in a team members see their own, admins everyone's."""
    from kimi_proxy.services.store.usage import day_of
    from kimi_proxy.team import report

    chosen = report.columns(by)

    async def usage(store: Store, who: Caller) -> list[tuple[tuple[str, ...], UsageSum]]:
        people = None if who.is_admin else [who.person_id]
        return report.group(await store.usage_by_day.usage(day_of(since.timestamp()) if since else "", people), chosen)

    rows = with_store(usage)
    if as_json:
        write_json({"by": chosen, "rows": report.rows_to_json(rows, chosen)})
    else:
        write(report.as_csv(rows, chosen) if as_csv else report.as_text(rows, chosen))


async def _lines(store: Store, who: Caller, since: datetime | None, session: str) -> Sequence[SavingsLine]:
    from kimi_proxy.services.chat.session_lookup import SessionNames

    chosen = await SessionNames(store.sessions).id_of(who, session) if session else None
    if chosen is not None and await store.sessions.get(who, chosen) is None:
        raise SessionNotFound(session)
    return await store.sessions.accounts(who, since.timestamp() if since else 0.0, chosen)


def moment_of(since: str) -> datetime | None:
    """Return the time that `since` means: 30m, 24h, 7d or 2w ago, or a date."""
    if not since:
        return None
    if ago := _AGO.fullmatch(since):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as e:
        raise click.BadParameter("use 30m, 24h, 7d, 2w, or a date such as 2026-11-01", param_hint="--since") from e
    return moment.astimezone(UTC)
