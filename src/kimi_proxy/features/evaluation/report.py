"""An evaluation told to people and to programs."""

from collections.abc import Sequence
from dataclasses import dataclass

from kimi_proxy.core.lines import split
from kimi_proxy.core.types import JsonObject
from kimi_proxy.features.evaluation.judging import Judged
from kimi_proxy.features.evaluation.measures import BUDGETS, Estimate
from kimi_proxy.features.evaluation.summary import Row, Table, tables


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
