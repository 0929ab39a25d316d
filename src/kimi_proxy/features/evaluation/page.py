"""An evaluation as one HTML file that needs nothing else: to read, to print, to send to a colleague."""

from html import escape

from kimi_proxy.core.lines import split
from kimi_proxy.features.evaluation.measures import BUDGETS
from kimi_proxy.features.evaluation.plots import curves
from kimi_proxy.features.evaluation.report import Report, cases_of, interval
from kimi_proxy.features.evaluation.summary import Row, Table, hardest

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
