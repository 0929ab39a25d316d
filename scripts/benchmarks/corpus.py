"""Texts to measure with: the standard library's own source, a made-up build log, and documentation."""

import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

GOALS = {
    "code": "where is the timeout of a connection set, and what happens when it is exceeded?",
    "logs": "why did the build fail?",
    "docs": "how do I configure the timeout of a session?",
}


def text(source_type: str, lines: int) -> str:
    makers = {"code": _code, "logs": _log, "docs": _docs}
    maker = makers[source_type]()
    return "\n".join(next(maker) for _ in range(lines)) + "\n"


def _code() -> Iterator[str]:
    library = Path(sysconfig.get_path("stdlib"))
    names = ("http/client", "ssl", "socket", "subprocess", "argparse", "typing", "tarfile", "zipfile", "inspect", "ast")
    while True:
        for name in names:
            yield from (library / f"{name}.py").read_text("utf-8").split("\n")


def _log() -> Iterator[str]:
    """Lines of a build, with a failing test about every 400 lines."""
    rng = random.Random(7)
    at = 0
    while True:
        at += 1
        stamp = f"2026-01-02T10:{at // 3600 % 60:02}:{at // 60 % 60:02}.{at % 1000:03}Z"
        kind = rng.randrange(400)
        if kind == 0:
            yield f"{stamp} FAILED tests/unit/test_orders_{rng.randrange(90)}.py::test_total - assert 12 == 13"
            yield "Traceback (most recent call last):"
            yield f'  File "/build/src/orders/total.py", line {rng.randrange(300)}, in total'
            yield "ValueError: amount is negative"
        elif kind < 120:
            order = rng.randrange(10**6)
            yield f"{stamp} INFO  [worker-{kind % 8}] GET /api/orders/{order} 200 in {rng.randrange(90)} ms"
        elif kind < 260:
            name = f"{rng.choice('abcdefgh')}{kind}"
            yield f"{stamp} Compiling module {name} v{kind % 9}.{kind % 7}.{kind % 5} (/build/vendor/{kind})"
        else:
            yield f"{stamp} tests/unit/test_module_{kind}.py::test_case_{rng.randrange(500)} PASSED [{at % 100}%]"


def _docs() -> Iterator[str]:
    root = Path(__file__).parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    while True:
        for page in pages:
            yield from page.read_text("utf-8").split("\n")
