"""Every statement about what requests saved, and what that cost. Callers hold the transaction."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, fields

from kimi_proxy.features.accounting.account import Account
from kimi_proxy.features.accounting.report import Line

# Of a request, in the order of the fields.
COLUMNS = tuple(field.name for field in fields(Account))


def values(account: Account | None) -> tuple[object, ...]:
    return (None,) * len(COLUMNS) if account is None else astuple(account)


def read(row: Sequence[object]) -> Account | None:
    return None if row[0] is None else Account(*row)  # type: ignore[arg-type]


def rows(connection: sqlite3.Connection, since: float, session: str | None) -> list[Line]:
    """Those of requests after `since`, of one session or of all; the session that was used last first."""
    found = connection.execute(
        """SELECT session_id, max(ifnull(nullif(sessions.title, ''), sessions.name)), metrics.model, count(*),
             sum(ifnull(tokens_before, ifnull(metrics.input_tokens, tokens_estimated))),
             sum(ifnull(tokens_after, ifnull(metrics.input_tokens, tokens_estimated))),
             sum(ifnull(metrics.cached_tokens, 0)), sum(ifnull(cache_lost_tokens, 0)), sum(ifnull(recoveries, 0)),
             sum(ifnull(extra_turns, 0)), sum(ifnull(recovery_tokens, 0)), sum(ifnull(summaries, 0)),
             sum(ifnull(summary_tokens, 0)), sum(ifnull(metrics.net_saved_tokens, 0)),
             sum(ifnull(metrics.cost_before_usd, metrics.cost_usd)), sum(metrics.cost_usd),
             sum(metrics.net_saved_usd)
           FROM metrics JOIN sessions ON sessions.id = metrics.session_id
           WHERE at >= ?1 AND (?2 IS NULL OR session_id = ?2)
           GROUP BY session_id, metrics.model ORDER BY max(at) DESC, session_id, metrics.model""",
        (since, session),
    ).fetchall()
    why = _reasons(connection, since, session)
    return [Line(why.get((row[0], row[2]), {}), *row) for row in found]


def _reasons(connection: sqlite3.Connection, since: float, session: str | None) -> dict[tuple[str, str], Counter[str]]:
    found = connection.execute(
        """SELECT session_id, model, reasons, count(*) FROM metrics
           WHERE at >= ?1 AND (?2 IS NULL OR session_id = ?2) AND reasons <> '' GROUP BY session_id, model, reasons""",
        (since, session),
    )
    counted: dict[tuple[str, str], Counter[str]] = {}
    for id, model, reasons, requests in found.fetchall():
        for reason in str(reasons).split():
            counted.setdefault((id, model), Counter())[reason] += requests
    return counted
