"""An evaluation as one HTML file that needs nothing else: to read, to print, to send to a colleague."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import SOURCE_TYPES, SourceType
from kimi_proxy.lab.judging import BUDGETS, Estimate, Judged, estimate

HARDEST = 10
TELLING = 1  # the budget by whose recall cases are called hard


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant over all cases of a type. Lists have one entry for each budget."""

    name: str
    recall: tuple[Estimate, ...]
    complete: tuple[float, ...]
    parses: tuple[float | None, ...]
    ahead: tuple[Estimate, ...]  # the first contestant's recall minus this one's, case by case
    ms: float


@dataclass(frozen=True, slots=True)
class Table:
    source_type: SourceType
    kinds: Mapping[str, int]
    rows: tuple[Row, ...]

    @property
    def cases(self) -> int:
        return sum(self.kinds.values())


def tables(judged: Sequence[Judged], seed: int) -> list[Table]:
    """The first contestant met is the one that all others are compared with."""
    found: list[Table] = []
    for source_type in SOURCE_TYPES:
        own = [j for j in judged if j.case.source_type == source_type]
        if own:
            kinds = Counter(j.case.kind for j in own if j.contestant == own[0].contestant)
            found.append(Table(source_type, dict(sorted(kinds.items())), tuple(_rows(own, seed))))
    return found


def _rows(judged: Sequence[Judged], seed: int) -> Iterable[Row]:
    by_name: dict[str, list[Judged]] = {}
    for j in judged:
        by_name.setdefault(j.contestant, []).append(j)
    first = next(iter(by_name.values()))
    for name, own in by_name.items():
        at = range(len(BUDGETS))
        recalls = [[j.figures[b].recall for j in own] for b in at]
        leads = [[f.figures[b].recall - j.figures[b].recall for f, j in zip(first, own, strict=True)] for b in at]
        yield Row(
            name,
            tuple(estimate(values, seed) for values in recalls),
            tuple(statistics.fmean(j.figures[b].complete for j in own) for b in at),
            tuple(_mean([j.figures[b].parses for j in own]) for b in at),
            tuple(estimate(values, seed) for values in leads),
            statistics.median(j.ms for j in own),
        )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def hardest(judged: Sequence[Judged]) -> list[Judged]:
    """Where the first contestant kept least of the answer."""
    if not judged:
        return []
    own = [j for j in judged if j.contestant == judged[0].contestant]
    return sorted(own, key=lambda j: (j.figures[TELLING].recall, j.case.id))[:HARDEST]


WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 230, 18, 44
COLOURS = ("#0b6e4f", "#c8553d", "#3d5a80", "#8e6c8a", "#b08900", "#6c757d", "#2a9d8f", "#7f4f24")
MOST_SHARE = 0.6


def curves(table: Table) -> str:
    """Recall over the share of tokens paid, a line for each contestant, with the interval of the first."""
    parts = [_frame()]
    for i, row in enumerate(table.rows):
        parts.append(_curve(row, COLOURS[i % len(COLOURS)], is_first=i == 0))
    parts += _legend([row.name for row in table.rows])
    label = escape(f"Recall by share of tokens, {table.source_type}")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        f'font-family="system-ui, sans-serif" font-size="12">{"".join(parts)}</svg>'
    )


def _x(share: float) -> float:
    return round(LEFT + share / MOST_SHARE * (WIDTH - LEFT - RIGHT), 1)


def _y(recall: float) -> float:
    return round(TOP + (1 - recall) * (HEIGHT - TOP - BOTTOM), 1)


def _frame() -> str:
    parts: list[str] = []
    for step in range(0, 11, 2):
        y = _y(step / 10)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="currentColor" opacity=".15"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end" fill="currentColor">{step * 10} %</text>')
    for budget in BUDGETS:
        x = _x(budget)
        parts.append(
            f'<line x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="currentColor" opacity=".15"/>'
            f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="currentColor">{budget:.0%}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle" fill="currentColor">tokens paid, markers included'
        "</text>"
    )
    return "".join(parts)


def _curve(row: Row, colour: str, is_first: bool) -> str:
    points = [(0.0, 0.0), *sorted((b, e.mean) for b, e in zip(BUDGETS, row.recall, strict=True))]
    path = " ".join(f"{_x(share)},{_y(recall)}" for share, recall in points)
    width = 3 if is_first else 1.5
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>']
    for budget, e in zip(BUDGETS, row.recall, strict=True):
        x = _x(budget)
        parts.append(f'<circle cx="{x}" cy="{_y(e.mean)}" r="{width + 1}" fill="{colour}"/>')
        if is_first:
            parts.append(f'<line x1="{x}" x2="{x}" y1="{_y(e.low)}" y2="{_y(e.high)}" stroke="{colour}"/>')
    return "".join(parts)


def _legend(names: Sequence[str]) -> list[str]:
    x = WIDTH - RIGHT + 20
    return [
        f'<rect x="{x}" y="{TOP + 4 + 22 * i}" width="14" height="4" fill="{COLOURS[i % len(COLOURS)]}"/>'
        f'<text x="{x + 22}" y="{TOP + 10 + 22 * i}" fill="currentColor">{escape(name[:28])}</text>'
        for i, name in enumerate(names)
    ]


@dataclass(frozen=True, slots=True)
class Report:
    """What was judged, on what, and how it went."""

    repository: str
    head: str
    version: str
    seed: int
    judged: Sequence[Judged]

    @property
    def tables(self) -> list[Table]:
        return tables(self.judged, self.seed)


def as_text(report: Report) -> str:
    out = [f"{report.repository} at {report.head[:12]}, seed {report.seed}, kimi-proxy {report.version}"]
    out += ["Share of the lines that answer which stay, when this share of the tokens is paid (markers included)."]
    for table in report.tables:
        out += ["", f"{table.source_type}: {cases_of(table)}", *_grid(table)]
    return "\n".join(out) + "\n"


def cases_of(table: Table) -> str:
    told = ", ".join(f"{count} {kind}" for kind, count in table.kinds.items())
    return f"{table.cases} cases ({told})"


def _grid(table: Table) -> list[str]:
    head = ["", *(f"{budget:.0%} of tokens" for budget in BUDGETS), "all of it at 30 %", "parses at 30 %", "ms"]
    rows = [head, *([*_cells(row)] for row in table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _cells(row: Row) -> list[str]:
    parses = row.parses[1]
    return [
        row.name,
        *(interval(e) for e in row.recall),
        f"{row.complete[1]:.0%}",
        "–" if parses is None else f"{parses:.0%}",
        f"{row.ms:.0f}",
    ]


def interval(e: Estimate, sign: str = "") -> str:
    return f"{e.mean:{sign}.3f} [{e.low:{sign}.3f}, {e.high:{sign}.3f}]"


def as_json(report: Report) -> JsonObject:
    return {
        "repository": report.repository,
        "head": report.head,
        "version": report.version,
        "seed": report.seed,
        "budgets": list(BUDGETS),
        "tables": [_table(table) for table in report.tables],
        "cases": _cases(report.judged),
    }


def _table(table: Table) -> JsonObject:
    return {
        "source_type": table.source_type,
        "cases": table.cases,
        "kinds": dict(table.kinds),
        "rows": [
            {
                "name": row.name,
                "recall": [_estimate(e) for e in row.recall],
                "all_gold_kept": [round(share, 4) for share in row.complete],
                "parses": [None if share is None else round(share, 4) for share in row.parses],
                "ahead": [_estimate(e) for e in row.ahead],
                "ms": round(row.ms, 2),
            }
            for row in table.rows
        ],
    }


def _estimate(e: Estimate) -> JsonObject:
    return {"mean": round(e.mean, 4), "low": round(e.low, 4), "high": round(e.high, 4)}


def _cases(judged: Sequence[Judged]) -> list[JsonObject]:
    by_case: dict[str, dict[str, list[float]]] = {}
    for j in judged:
        by_case.setdefault(j.case.id, {})[j.contestant] = [round(f.recall, 4) for f in j.figures]
    cases = {j.case.id: j.case for j in judged}
    return [
        {
            "id": case.id,
            "kind": case.kind,
            "source_type": case.source_type,
            "path": case.path,
            "goal": case.goal,
            "lines": len(split(case.text)),
            "gold": [row + 1 for row in case.gold],
            "recall": dict(by_case[case.id]),
        }
        for case in cases.values()
    ]


_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{margin-bottom:0}h2{margin-top:2.5rem}.faint{opacity:.7}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .6rem .3rem 0;border-bottom:1px solid rgba(128,128,128,.3);vertical-align:top}
tr.first td{font-weight:600}svg{width:100%;height:auto}code{font-size:.85em}
.scroll{overflow-x:auto}
"""
_READING = """
Each case is a question whose answer is known: a commit's message and the lines it changed, a definition's
documentation and its body, a heading and the text under it, a failure that a log names and its report. Recall is the
share of those lines that stay. Every contestant pays for the same share of the tokens, and for the markers that stand
where lines were cut. Brackets hold the 95 % interval of a bootstrap over cases.
"""


def as_html(report: Report) -> str:
    title = f"How well lines are chosen in {report.repository}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="faint">kimi-proxy {escape(report.version)} · commit <code>{escape(report.head[:12])}</code> · '
        f"seed {report.seed}</p>",
        f"<p>{_READING}</p>",
        *(_section(table) for table in report.tables),
        _hard(report),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>{''.join(body)}</body></html>\n"
    )


def _section(table: Table) -> str:
    head = "".join(f"<th>{budget:.0%} of tokens</th>" for budget in BUDGETS)
    rows = "".join(_row(row, is_first=i == 0) for i, row in enumerate(table.rows))
    return (
        f"<h2>{table.source_type.capitalize()}: {escape(cases_of(table))}</h2>{curves(table)}"
        f'<div class="scroll"><table><tr><th></th>{head}<th>all of it<br>at {BUDGETS[1]:.0%}</th>'
        f"<th>parses<br>at {BUDGETS[1]:.0%}</th><th>ms</th></tr>{rows}</table></div>{_leads(table)}"
    )


def _row(row: Row, is_first: bool) -> str:
    parses = row.parses[1]
    cells = [escape(row.name), *(interval(e) for e in row.recall), f"{row.complete[1]:.0%}"]
    cells += ["–" if parses is None else f"{parses:.0%}", f"{row.ms:.0f}"]
    return f"<tr{' class=first' if is_first else ''}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _leads(table: Table) -> str:
    """How far the first contestant is ahead of each other, case by case."""
    first, *others = table.rows
    if not others:
        return ""
    head = "".join(f"<th>{budget:.0%}</th>" for budget in BUDGETS)
    rows = "".join(_lead(row) for row in others)
    return (
        f"<h3>{escape(first.name)} is ahead of</h3>"
        f'<div class="scroll"><table><tr><th></th>{head}</tr>{rows}</table></div>'
    )


def _lead(row: Row) -> str:
    cells = [escape(row.name), *(interval(e, "+") for e in row.ahead)]
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _hard(report: Report) -> str:
    rows = "".join(
        f"<tr><td>{j.figures[1].recall:.2f}</td><td>{escape(j.case.goal)}</td>"
        f"<td><code>{escape(j.case.id)}</code></td><td>{len(j.case.gold)} of {len(split(j.case.text))}</td></tr>"
        for j in hardest(report.judged)
    )
    return (
        f"<h2>Where {escape(report.judged[0].contestant) if report.judged else 'it'} did worst</h2>"
        f'<div class="scroll"><table><tr><th>recall at {BUDGETS[1]:.0%}</th><th>goal</th><th>case</th>'
        f"<th>lines that answer</th></tr>{rows}</table></div>"
    )
