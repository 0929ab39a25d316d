"""Plots drawn by hand as SVG: nothing to load, sharp on paper."""

from collections.abc import Sequence
from html import escape

from kimi_proxy.features.evaluation.measures import BUDGETS
from kimi_proxy.features.evaluation.summary import Row, Table

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
