"""`kimi-proxy report`: costs and savings, read from the store; no server has to run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kimi_proxy.cli.console import JsonOption, load, log_errors_only, write, write_json

if TYPE_CHECKING:
    from kimi_proxy.core.config import Config
    from kimi_proxy.features.accounting import SavingsLine


_AGO = re.compile(r"(\d{1,5})([mhdw])", re.ASCII)
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def report(
    since: Annotated[
        str, typer.Option(metavar="WHEN", help="Only requests after this: 30m, 24h, 7d, 2w, or 2026-11-01.")
    ] = "",
    session: Annotated[
        str, typer.Option(metavar="SESSION", help="Only this one: its id, or the name that its client gives it.")
    ] = "",
    as_json: JsonOption = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV instead: a line for each session and model.")
    ] = False,
) -> None:
    """Print what requests cost, what they would have cost, and what was saved after all.

    Lost cache reads, recoveries and summaries are taken off; less than zero is a loss. docs/accounting.md explains how.
    """
    import asyncio

    from kimi_proxy.features import accounting

    log_errors_only()
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv", param_hint="--csv")
    moment = _moment(since)
    lines = asyncio.run(_lines(load().config, moment, session))
    since_text = moment.isoformat(timespec="seconds").replace("+00:00", "Z") if moment else None
    if as_json:
        write_json(accounting.as_json(lines, since_text))
    else:
        write(accounting.as_csv(lines) if as_csv else accounting.as_text(lines, since_text))


async def _lines(config: Config, since: datetime | None, session: str) -> Sequence[SavingsLine]:
    from kimi_proxy.features.sessions import session_named
    from kimi_proxy.services.store import open_store

    store = await open_store(
        config.home, ttl_s=config.mcp_pruner.prune_id_ttl_s, max_bytes=config.store.max_bytes, url=config.store.url
    )
    try:
        return await store.sessions.accounts(
            since.timestamp() if since else 0.0, session_named(session).id if session else None
        )
    finally:
        await store.close()


def _moment(since: str) -> datetime | None:
    if not since:
        return None
    if ago := _AGO.fullmatch(since):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        moment = datetime.fromisoformat(since)
    except ValueError as e:
        raise typer.BadParameter("say 30m, 24h, 7d, 2w, or a date such as 2026-11-01", param_hint="--since") from e
    return moment.astimezone(UTC)
