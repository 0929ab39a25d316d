"""Accounts of many requests, summed up and told."""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from kimi_proxy.core.types import JsonObject, JsonValue

# A spreadsheet takes a cell that begins so for a formula, and runs it.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class Line:
    """What the requests of a session to a model came to. Money is a sum as far as prices are known."""

    reasons: Mapping[str, int]  # why nothing was saved, and in how many requests
    session: str
    title: str
    model: str
    requests: int
    tokens_before: int
    tokens_after: int
    cached_tokens: int
    cache_lost_tokens: int
    recoveries: int
    extra_turns: int
    recovery_tokens: int
    summaries: int
    summary_tokens: int
    net_saved_tokens: int
    cost_before_usd: float | None
    cost_usd: float | None
    net_saved_usd: float | None


NAMES = tuple(field.name for field in fields(Line) if field.name != "reasons")
_TEXTS = ("session", "title", "model")
_MONEY = tuple(name for name in NAMES if name.endswith("_usd"))
_COUNTS = tuple(name for name in NAMES if name not in (*_TEXTS, *_MONEY))


def summed(lines: Iterable[Line], model: str = "") -> Line:
    """All of them as one; a price that nobody knows adds nothing."""
    lines = list(lines)
    counts = [sum(getattr(line, name) for line in lines) for name in _COUNTS]
    money = [_sum([getattr(line, name) for line in lines]) for name in _MONEY]
    reasons: Counter[str] = Counter()
    for line in lines:
        reasons.update(line.reasons)
    return Line(reasons, "", "", model, *counts, *money)


def by_model(lines: Sequence[Line]) -> list[Line]:
    models = dict.fromkeys(line.model for line in lines)
    return [summed((line for line in lines if line.model == model), model) for model in models]


def as_json(lines: Sequence[Line], since: str | None) -> JsonObject:
    sessions: list[JsonValue] = [_told(line, *_TEXTS) for line in lines]
    models: list[JsonValue] = [_told(line, "model") for line in by_model(lines)]
    totals = {"sessions": len({line.session for line in lines}), **_told(summed(lines))}
    return {"since": since, "totals": totals, "models": models, "sessions": sessions}


def as_csv(lines: Sequence[Line]) -> str:
    page = io.StringIO()
    rows = csv.writer(page)
    rows.writerow((*NAMES, "reasons"))
    for line in lines:
        why = " ".join(f"{reason}={count}" for reason, count in _often(line))
        rows.writerow([*(_cell(getattr(line, name)) for name in NAMES), why])
    return page.getvalue()


def as_text(lines: Sequence[Line], since: str | None) -> str:
    """For people: what all of it came to, and each session under it."""
    after = f" since {since}" if since else ""
    if not lines:
        return f"no requests{after}\n"
    all = summed(lines)
    sessions = len({line.session for line in lines})
    out = [f"{all.requests:,} requests in {sessions:,} sessions{after}", *_sum_of(all)]
    if all.reasons:
        out.append("nothing was saved because: " + ", ".join(f"{why} ({n:,})" for why, n in _often(all)))
    return "\n".join([*out, "", *_grid(lines)]) + "\n"


def _sum_of(all: Line) -> list[str]:
    told = [
        ("as they came", all.tokens_before, all.cost_before_usd),
        ("as they left", all.tokens_after, all.cost_usd),
        ("cache reads lost", all.cache_lost_tokens, None),
        (f"read back ({all.recoveries:,} times, {all.extra_turns:,} extra turns)", all.recovery_tokens, None),
        (f"summaries ({all.summaries:,})", all.summary_tokens, None),
        ("saved after all", all.net_saved_tokens, all.net_saved_usd),
    ]
    width = max(len(name) for name, *_ in told)
    share = f"  {100 * all.net_saved_tokens / all.tokens_before:.1f} %" if all.tokens_before else ""
    lines = [f"  {name:<{width}}  {tokens:>14,} tokens{_usd(usd)}" for name, tokens, usd in told]
    return [*lines[:-1], lines[-1] + share]


_GRID = (
    *("session", "model", "requests", "before", "after", "cache lost", "read back", "summaries"),
    *("saved", "USD before", "USD", "USD saved"),
)


def _grid(lines: Sequence[Line]) -> list[str]:
    rows = [_GRID, *map(_cells, lines)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_GRID))]
    return ["  ".join(_set(cell, at, widths[at]) for at, cell in enumerate(row)).rstrip() for row in rows]


def _set(cell: str, at: int, width: int) -> str:
    return cell.ljust(width) if at < 2 else cell.rjust(width)


def _cells(line: Line) -> tuple[str, ...]:
    counts = (
        *(line.requests, line.tokens_before, line.tokens_after, line.cache_lost_tokens),
        *(line.recovery_tokens, line.summary_tokens, line.net_saved_tokens),
    )
    money = ("–" if usd is None else f"{usd:.4f}" for usd in (line.cost_before_usd, line.cost_usd, line.net_saved_usd))
    return (line.title or line.session)[:40], line.model[:40], *(f"{count:,}" for count in counts), *money


def _told(line: Line, *texts: str) -> JsonObject:
    told: JsonObject = {name: getattr(line, name) for name in (*texts, *_COUNTS)}
    money = {name: None if (usd := getattr(line, name)) is None else round(usd, 6) for name in _MONEY}
    return {**told, **money, "reasons": dict(_often(line))}


def _often(line: Line) -> list[tuple[str, int]]:
    return sorted(line.reasons.items(), key=lambda one: (-one[1], one[0]))


def _sum(money: Sequence[float | None]) -> float | None:
    known = [usd for usd in money if usd is not None]
    return round(math.fsum(known), 9) if known else None


def _usd(usd: float | None) -> str:
    return "" if usd is None else f"  {usd:>10.4f} USD"


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
