"""New tool results on an idle machine and on a busy one: what is cut of them, and how long a request waits for it."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import sanitizer
from timing import median, p95, table

sys.path.append(str(Path(__file__).parents[2]))

from tests.support import outputs

from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.sqlite.store import SqliteStore
from kimi_proxy.services.workers.pool import Workers

LOOPS = 8  # beside which everything is measured a second time
TIMES = 12
RESULTS = {
    "pytest log": ("bash", {"command": "pytest -v"}, outputs.pytest_log(3000)),
    "build log": ("bash", {"command": "cargo build"}, outputs.build_log(3000)),
    "JSON array": ("query", {"sql": "select * from orders"}, outputs.records(2000)),
    "search hits": ("bash", {"command": "rg total"}, outputs.search_hits(2000)),
    "source file": ("read_file", {"path": "src/app.py"}, outputs.source_file()),
}


@dataclass(slots=True)
class Figures:
    before: int = 0
    after: int = 0
    waited_ms: list[float] = field(default_factory=list)


def main() -> None:
    idle = asyncio.run(_measured())
    with busy_loops(LOOPS):
        busy = asyncio.run(_measured())
    rows = [(name, f"{len(RESULTS[name][2].text) // 1000} KB", *_row(idle[name], busy[name])) for name in RESULTS]
    head = ("new result", "size", "cut idle", "median ms", "p95 ms", "cut busy", "of idle", "median ms", "p95 ms")
    table(f"New results, idle and with {LOOPS} busy loops on {os.cpu_count()} cores", head, rows)


def _row(idle: Figures, busy: Figures) -> tuple[str, ...]:
    share = (busy.before - busy.after) / max(1, idle.before - idle.after)
    return (*_cells(idle)[:1], *_cells(idle)[1:], _cells(busy)[0], f"{share:.0%}", *_cells(busy)[1:])


def _cells(figures: Figures) -> tuple[str, str, str]:
    cut = 1 - figures.after / figures.before
    return f"{cut:.0%}", f"{median(figures.waited_ms):.0f}", f"{p95(figures.waited_ms):.0f}"


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Have so many processes compute without a pause; they end with the block, or with us."""
    program = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"
    loops = [subprocess.Popen([sys.executable, "-c", program, str(os.getpid())]) for _ in range(count)]
    try:
        time.sleep(1 if count else 0)
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


async def _measured() -> dict[str, Figures]:
    figures = {name: Figures() for name in RESULTS}
    workers = Workers()
    await workers.warm()
    await asyncio.sleep(2)  # as a server has had the time to
    with tempfile.TemporaryDirectory() as home:
        store = await SqliteStore.open(Path(home), ttl_s=86_400, max_bytes=1 << 30, timeout_s=2.0)
        decisions = ChatDecisions(store.originals, store.decisions)
        stage = Sanitizer(Settings(), "http://127.0.0.1:8000", decisions, ChatFacts(store.facts), workers, Metrics())
        for turn in range(TIMES):
            for name in RESULTS:
                await _turn(stage, name, turn, figures[name])
        await store.close()
    await workers.close()
    return figures


async def _turn(stage: Sanitizer, name: str, turn: int, figures: Figures) -> None:
    """Send a conversation of its own with one new result."""
    tool, arguments, printed = RESULTS[name]
    said = [sanitizer.user(Wire.CHAT, f"{printed.goal} ({turn})")]
    said += sanitizer.called(Wire.CHAT, f"call_{name}_{turn}", tool, dict(arguments), printed.text)
    request = parse(sanitizer.body(Wire.CHAT, said), Wire.CHAT)
    draft = Draft(request, Target("kimi", "kimi-k2"), Session(f"{name} {turn}"), LOCAL)
    began = time.perf_counter()
    left = await stage.change(draft)
    figures.waited_ms.append((time.perf_counter() - began) * 1000)
    figures.before += tokens.count(request.body.decode())
    figures.after += tokens.count(left.request.body.decode())
