"""What can fail around kimi-proxy, and the test that shows what happens then; run as a program, it prints the page."""

from pathlib import Path
from typing import NamedTuple

LINES = (Path(__file__).parent / "matrix.txt").read_text().splitlines()


class Cell(NamedTuple):
    fault: str
    path: str
    test: str


def matrix() -> dict[str, list[Cell]]:
    """Return the cells by what fails."""
    cells: dict[str, list[Cell]] = {}
    for line in filter(None, LINES):
        if line.startswith("# "):
            rows = cells[line[2:]] = []
        else:
            rows.append(Cell(*line.split(" | ")))
    return cells


def page() -> str:
    """Return the matrix as docs/guarantees.md shows it."""
    parts: list[str] = []
    for what, cells in matrix().items():
        rows = (f"| {cell.fault} | `{cell.test}` |" for cell in cells)
        head = f"### {what[0].upper()}{what[1:]}: {len(cells)}"
        parts.append("\n".join((head, "", "| what | test |", "|---|---|", *rows)))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    print(page(), end="")
