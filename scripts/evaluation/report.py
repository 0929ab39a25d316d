"""The report of an evaluation: as text, as JSON, or as one HTML file to read, print or send to a colleague."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from evaluation.judging import BUDGETS, Estimate, Judged, estimate
from evaluation.used_cases import UsedRecall
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import SOURCE_TYPES, SourceType
from kimi_proxy.lab.audit_report import COLOURS, html_table, page

HARDEST = 10
MIDDLE = 1  # the budget by whose recall cases are called hard, and that tables show in full


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant over all cases of a type. Lists have one entry for each budget."""

    name: str
    recall: tuple[Estimate, ...]
    complete: tuple[float, ...]
    parses: tuple[float | None, ...]
    ahead: tuple[Estimate, ...]  # the first contestant's recall minus this one's, case by case
    ms: float

    def cells(self) -> list[str]:
        parses = self.parses[MIDDLE]
        shares = [f"{self.complete[MIDDLE]:.0%}", "–" if parses is None else f"{parses:.0%}"]
        return [self.name, *(interval(e) for e in self.recall), *shares, f"{self.ms:.0f}"]


@dataclass(frozen=True, slots=True)
class Table:
    source_type: SourceType
    kinds: Mapping[str, int]
    rows: tuple[Row, ...]

    @property
    def cases(self) -> int:
        return sum(self.kinds.values())

    @property
    def title(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        return f"{self.cases} cases ({kinds})"


@dataclass(frozen=True, slots=True)
class Report:
    """What was judged, on what, and how it went."""

    repository: str
    head: str
    version: str
    seed: int
    judged: Sequence[Judged]
    ranked: UsedRecall | None = None  # where agents' sessions were judged

    @property
    def origin(self) -> str:
        return f"{self.repository} at {self.head[:12]}" if self.head else self.repository

    @property
    def tables(self) -> list[Table]:
        """The first contestant met is the one that all others are compared with."""
        found: list[Table] = []
        for source_type in SOURCE_TYPES:
            own = [j for j in self.judged if j.case.source_type == source_type]
            if own:
                kinds = Counter(j.case.kind for j in own if j.contestant == own[0].contestant)
                found.append(Table(source_type, dict(sorted(kinds.items())), tuple(_rows(own, self.seed))))
        return found

    def hardest(self) -> list[Judged]:
        """Return where the first contestant kept least of the answer."""
        own = [j for j in self.judged if j.contestant == self.judged[0].contestant]
        return sorted(own, key=lambda j: (j.figures[MIDDLE].recall, j.case.id))[:HARDEST]


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


def interval(e: Estimate, sign: str = "") -> str:
    return f"{e.mean:{sign}.3f} [{e.low:{sign}.3f}, {e.high:{sign}.3f}]"


def as_text(report: Report) -> str:
    out = [f"{report.origin}, seed {report.seed}, kimi-proxy {report.version}"]
    out += ["Share of the lines that answer which stay, when this share of the tokens is paid (markers included)."]
    head = ["", *(f"{budget:.0%} of tokens" for budget in BUDGETS), "all of it at 30 %", "parses at 30 %", "ms"]
    for table in report.tables:
        rows = [head, *(row.cells() for row in table.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        out += ["", f"{table.source_type}: {table.title}"]
        out += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    out += ["", *_ranked_lines(report.ranked)] if report.ranked else []
    return "\n".join(out) + "\n"


def _ranked_lines(ranked: UsedRecall) -> Iterable[str]:
    """Yield what the ranking of used lines reaches without markers and structure."""
    yield "Used lines of 20 characters and more among the likeliest for this share of their tokens, without markers."
    for name, count, recall in (
        ("each output by itself", f"{ranked.outputs} outputs", ranked.per_output),
        ("one budget for a session", f"{ranked.sessions} sessions", ranked.per_session),
    ):
        shares = ", ".join(f"{share:.3f} at {budget:.0%}" for budget, share in zip(BUDGETS, recall, strict=True))
        yield f"{name}: {shares} ({count})"


def as_json(report: Report) -> JsonObject:
    return {
        "repository": report.repository,
        "head": report.head,
        "version": report.version,
        "seed": report.seed,
        "budgets": list(BUDGETS),
        "tables": [
            {
                "source_type": table.source_type,
                "cases": table.cases,
                "kinds": dict(table.kinds),
                "rows": [_row_to_json(row) for row in table.rows],
            }
            for table in report.tables
        ],
        "cases": _cases_to_json(report.judged),
        **({"ranked": _ranked_to_json(report.ranked)} if report.ranked else {}),
    }


def _ranked_to_json(ranked: UsedRecall) -> JsonObject:
    return {
        "outputs": ranked.outputs,
        "sessions": ranked.sessions,
        "per_output": [round(share, 4) for share in ranked.per_output],
        "per_session": [round(share, 4) for share in ranked.per_session],
    }


def _row_to_json(row: Row) -> JsonObject:
    return {
        "name": row.name,
        "recall": [_estimate_to_json(e) for e in row.recall],
        "all_gold_kept": [round(share, 4) for share in row.complete],
        "parses": [None if share is None else round(share, 4) for share in row.parses],
        "ahead": [_estimate_to_json(e) for e in row.ahead],
        "ms": round(row.ms, 2),
    }


def _estimate_to_json(e: Estimate) -> JsonObject:
    return {name: round(value, 4) for name, value in e._asdict().items()}


def _cases_to_json(judged: Sequence[Judged]) -> list[JsonObject]:
    by_case: dict[str, JsonObject] = {}
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
            "recall": by_case[case.id],
        }
        for case in cases.values()
    ]


_READING = """
Each case is a question whose answer is known: a commit's message and the lines it changed, a definition's
documentation and its body, a heading and the text under it, a failure that a log names and its report, or what a tool
printed and the lines of it that an agent wrote later. Recall is the share of those lines that stay. Every contestant
pays for the same share of the tokens, and for the markers that stand where lines were cut. Brackets hold the 95 %
interval of a bootstrap over cases.
"""


def as_html(report: Report) -> str:
    title = f"How well lines are chosen in {report.repository}"
    commit = f"commit <code>{escape(report.head[:12])}</code> · " if report.head else ""
    body = [
        f'<p class="faint">kimi-proxy {escape(report.version)} · {commit}seed {report.seed}</p>',
        f"<p>{_READING}</p>",
        *(f"<p>{escape(line)}</p>" for line in (_ranked_lines(report.ranked) if report.ranked else ())),
        *(_section(table) for table in report.tables),
        _hardest(report),
    ]
    return page(title, body)


def _section(table: Table) -> str:
    """Return the plot and the table of a type, and how far its first contestant is ahead of each other."""
    first, *others = table.rows
    head = ["", *(f"{budget:.0%} of tokens" for budget in BUDGETS)]
    head += [f"all of it<br>at {BUDGETS[MIDDLE]:.0%}", f"parses<br>at {BUDGETS[MIDDLE]:.0%}", "ms"]
    shown = html_table(head, [[escape(row.name), *row.cells()[1:]] for row in table.rows], first_is_bold=True)
    leads = [[escape(row.name), *(interval(e, "+") for e in row.ahead)] for row in others]
    ahead = html_table(["", *(f"{budget:.0%}" for budget in BUDGETS)], leads)
    title = f"<h2>{table.source_type.capitalize()}: {escape(table.title)}</h2>"
    return f"{title}{curves(table)}{shown}" + (f"<h3>{escape(first.name)} is ahead of</h3>{ahead}" if others else "")


def _hardest(report: Report) -> str:
    rows = [
        [
            f"{j.figures[MIDDLE].recall:.2f}",
            escape(j.case.goal),
            f"<code>{escape(j.case.id)}</code>",
            f"{len(j.case.gold)} of {len(split(j.case.text))}",
        ]
        for j in (report.hardest() if report.judged else ())
    ]
    name = escape(report.judged[0].contestant) if report.judged else "it"
    head = [f"recall at {BUDGETS[MIDDLE]:.0%}", "goal", "case", "lines that answer"]
    return f"<h2>Where {name} did worst</h2>{html_table(head, rows)}"


WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 230, 18, 44
MOST_SHARE = 0.6


def curves(table: Table) -> str:
    """Return a plot: recall over the share of tokens paid, a line for each contestant, the interval of the first."""
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
