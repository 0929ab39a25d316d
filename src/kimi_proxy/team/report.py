"""Reports for a team: usage by person, team, model and day, and the audit log for people and programs."""

from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict, get_args

from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.services.events import iso_time
from kimi_proxy.services.store.usage import SUMS, UsageKey, UsageSum
from kimi_proxy.team.records import AuditEntry

Column = Literal["person", "team", "model", "day"]
COLUMNS: tuple[Column, ...] = get_args(Column)


class UsageSums(TypedDict):
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    tokens_saved: int
    net_saved_tokens: int
    cost_usd: float
    net_saved_usd: float


class UsageNames(TypedDict, total=False):
    person: str
    team: str
    model: str
    day: str


class UsageRow(UsageNames, UsageSums):
    """The requested columns, and the totals."""


class AuditFields(TypedDict):
    at: str
    person: str
    action: str
    subject: str
    detail: str
    outcome: str


def columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a list such as `person,day` names. Raise InvalidParams if one is none."""
    wanted = [name.strip() for name in text.split(",")]
    found = tuple(column for name in dict.fromkeys(wanted) for column in COLUMNS if column == name)
    if len(found) < len(wanted):
        raise InvalidParams("by", f"use some of {', '.join(COLUMNS)}, separated by commas")
    return found


def group(usage: Iterable[tuple[UsageKey, UsageSum]], by: Sequence[Column]) -> list[tuple[tuple[str, ...], UsageSum]]:
    """Return the sums for each group; by days in their order, else the costliest first."""
    sums: dict[tuple[str, ...], UsageSum] = {}
    for key, one in usage:
        group = tuple(str(getattr(key, name)) for name in by)
        sums[group] = sums.get(group, UsageSum()) + one
    rows = sorted(sums.items(), key=lambda row: (-row[1].cost_usd, -row[1].input_tokens, row[0]))
    return sorted(rows, key=lambda row: row[0][by.index("day")]) if "day" in by else rows


def rows_to_json(rows: Iterable[tuple[tuple[str, ...], UsageSum]], by: Sequence[Column]) -> list[UsageRow]:
    return [{**_names(by, group), **_sums(one)} for group, one in rows]


def _names(by: Sequence[Column], group: Sequence[str]) -> UsageNames:
    names: UsageNames = {}
    for column, name in zip(by, group, strict=True):
        names[column] = name
    return names


def as_csv(rows: Iterable[tuple[tuple[str, ...], UsageSum]], by: Sequence[Column]) -> str:
    """Return a line for each group, with a line of names before them."""
    lines = [(*by, *SUMS), *((*map(_cell, group), *map(str, _sums(one).values())) for group, one in rows)]
    return "".join(",".join(line) + "\n" for line in lines)


def as_text(rows: Sequence[tuple[tuple[str, ...], UsageSum]], by: Sequence[Column]) -> str:
    """Return a table for a terminal."""
    if not rows:
        return "No requests were counted in this time.\n"
    head = (*by, "requests", "input", "cached", "output", "cost USD", "net saved USD")
    table = [
        (
            *(name or "-" for name in group),
            f"{one.requests:,}",
            f"{one.input_tokens:,}",
            f"{one.cached_tokens:,}",
            f"{one.output_tokens:,}",
            f"{one.cost_usd:.4f}",
            f"{one.net_saved_usd:.4f}",
        )
        for group, one in rows
    ]
    widths = [max(len(row[at]) for row in (head, *table)) for at in range(len(head))]
    return "".join(_align(row, widths, len(by)) for row in (head, *table))


def audit_line(entry: AuditEntry) -> AuditFields:
    return {
        "at": iso_time(entry.at),
        "person": entry.person,
        "action": entry.action,
        "subject": entry.subject,
        "detail": entry.detail,
        "outcome": entry.outcome,
    }


def _sums(one: UsageSum) -> UsageSums:
    return {
        "requests": one.requests,
        "input_tokens": one.input_tokens,
        "cached_tokens": one.cached_tokens,
        "output_tokens": one.output_tokens,
        "tokens_saved": one.tokens_saved,
        "net_saved_tokens": one.net_saved_tokens,
        "cost_usd": round(one.cost_usd, 6),
        "net_saved_usd": round(one.net_saved_usd, 6),
    }


def _cell(text: str) -> str:
    """Return a name as CSV holds it; no spreadsheet takes it for a formula."""
    text = f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n\r') else text


def _align(row: Sequence[str], widths: Sequence[int], names: int) -> str:
    cells = (
        cell.ljust(width) if at < names else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip() + "\n"
