"""What tools print, in the length in which they print it, and what in it somebody will need."""

import json
import random
import sysconfig
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Printed:
    text: str
    needles: tuple[str, ...]  # lines, or parts of lines
    goal: str


def pytest_log(lines: int = 3000, seed: int = 3) -> Printed:
    """A long run with one failure, and a page of warnings after it."""
    rng = random.Random(seed)
    areas = ("orders", "billing", "users", "search", "mail", "stock", "auth", "carts")
    name = "tests/orders/test_orders_billing.py::test_total_with_discount_and_tax"
    runs = lines - 108
    out = [
        "============================= test session starts ==============================",
        "platform linux -- Python 3.11.9, pytest-8.4.2, pluggy-1.6.0 -- /opt/venv/bin/python",
        "rootdir: /srv/shop",
        "plugins: anyio-4.11.0, cov-5.0.0, xdist-3.6.1",
        f"collected {runs} items",
        "",
    ]
    for i in range(runs):
        area, verb = areas[i % len(areas)], rng.choice(("creates", "updates", "deletes", "lists", "rejects"))
        test = (
            f"tests/{area}/test_{area}_{rng.choice(('api', 'model', 'views'))}.py::Test{area.title()}::test_{verb}_{i}"
        )
        out.append(
            f"{name} FAILED [{i * 100 // runs:3}%]" if i == runs * 2 // 3 else f"{test} PASSED [{i * 100 // runs:3}%]"
        )
    report = [
        "=================================== FAILURES ===================================",
        "_______________________ test_total_with_discount_and_tax _______________________",
        "",
        "    def test_total_with_discount_and_tax():",
        "        order = Order(lines=[Line(sku='A-17', quantity=3, unit_price=Decimal('19.99'))])",
        "        order.apply(Discount(percent=15))",
        ">       assert order.total(tax=Tax('FR', 20)) == Decimal('61.16')",
        "E       AssertionError: assert Decimal('59.97') == Decimal('61.16')",
        "E        +  where Decimal('59.97') = total(tax=Tax('FR', 20))",
        "",
        "tests/orders/test_orders_billing.py:218: AssertionError",
    ]
    warned = "/opt/venv/lib/python3.11/site-packages/legacy_{}/compat.py:{}: DeprecationWarning: utcnow() is deprecated"
    summary = f"FAILED {name} - AssertionError: assert Decimal('59.97') == Decimal('61.16')"
    total = f"============ 1 failed, {runs - 1} passed, 80 warnings in 214.53s (0:03:34) ============"
    out += [
        "",
        *report,
        "=============================== warnings summary ===============================",
        *("  " + warned.format(i % 7, i * 13 % 400) for i in range(80)),
        "-- Docs: https://docs.pytest.org/en/stable/how-to/capture-warnings.html",
        "=========================== short test summary info ============================",
        summary,
        total,
    ]
    return Printed(
        "\n".join(out) + "\n", (f"{name} FAILED", *filter(None, report), summary, total), "Make the tests pass."
    )


def build_log(lines: int = 1200, seed: int = 5) -> Printed:
    """A build that stops at one error."""
    rng = random.Random(seed)
    crates = ("serde", "tokio", "hyper", "rand", "clap", "regex", "bytes", "futures", "tower", "axum", "tracing")
    error = [
        "error[E0308]: mismatched types",
        "   --> crates/ledger/src/posting.rs:147:23",
        "    |",
        "145 |     fn balance(&self) -> Result<Amount, LedgerError> {",
        "    |                          --------------------------- expected because of this return type",
        "147 |         self.entries.iter().map(|e| e.amount).sum()",
        "    |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ expected `Result<Amount, _>`, found `Amount`",
    ]
    out = ["    Updating crates.io index", "  Downloaded 412 crates (38.2 MB) in 4.11s"]
    for i in range(lines - len(error) - 5):
        crate = f"{rng.choice(crates)}-{rng.choice(('core', 'macros', 'util', 'derive', 'sys'))}-{i}"
        verb = "Compiling" if i % 3 else " Checking"
        out.append(f"   {verb} {crate} v{i % 4}.{i % 17}.{i % 9} (/srv/ledger/vendor/{crate})")
        if i == lines * 7 // 10:
            out += [*error, ""]
    last = "error: could not compile `ledger` (lib) due to 1 previous error"
    out += [last, "warning: build failed, waiting for other jobs to finish..."]
    return Printed("\n".join(out) + "\n", (*error, last), "The build is broken. Fix it.")


def source_file() -> Printed:
    """A module of the standard library, and a question about one of its functions."""
    text = (Path(sysconfig.get_path("stdlib")) / "shutil.py").read_text("utf-8")
    needles = (
        "def move(src, dst, copy_function=copy2):",
        "os.rename(src, real_dst)",
        "if _destinsrc(src, dst):",
        "copytree(src, real_dst, copy_function=copy_function",
    )
    return Printed(text, needles, "What does move() do when source and destination are on different filesystems?")


def numbered(printed: Printed) -> Printed:
    """The same, as tools that read files show it."""
    lines = printed.text.split("\n")
    return Printed("\n".join(f"{i:6}→{line}" for i, line in enumerate(lines, 1)), printed.needles, printed.goal)


def records(count: int = 1000, indent: int | None = None, seed: int = 9) -> Printed:
    """Records of requests, one of which went wrong."""
    rng = random.Random(seed)
    rows: list[dict[str, object]] = [
        {
            "id": 10_000 + i,
            "timestamp": f"2026-03-{1 + i % 28:02}T{i % 24:02}:{i % 60:02}:{i * 7 % 60:02}Z",
            "service": rng.choice(("checkout", "catalog", "users", "search")),
            "region": rng.choice(("eu-west-1", "us-east-1")),
            "status": "ok",
            "latency_ms": rng.randrange(20, 180),
            "user": f"user_{rng.randrange(10**6)}",
            "trace_id": f"{rng.getrandbits(64):016x}",
        }
        for i in range(count)
    ]
    rows[count * 637 // 1000] |= {"latency_ms": 30_211, "error": "pool drained: 50/50 in use"}
    needles = ("pool drained: 50/50 in use", "30211", f'"id": {10_000 + count * 637 // 1000}')
    return Printed(json.dumps(rows, indent=indent), needles, "Something is odd in here. What?")


def search_hits(count: int = 700, seed: int = 11) -> Printed:
    """What ripgrep finds for `open` in a large tree, where two hits are about the question."""
    rng = random.Random(seed)
    library = Path(sysconfig.get_path("stdlib"))
    found: list[str] = []
    for file in sorted(library.glob("*.py")):
        lines = file.read_text("utf-8", "replace").split("\n")
        found += [
            f"Lib/{file.name}:{i}:{line}" for i, line in enumerate(lines, 1) if "open" in line and len(line) < 160
        ]
    hits = found[: count - 2]
    needles = (
        "src/shop/ledger.py:88:def open_ledger(path: Path, *, strict: bool = True) -> Ledger:",
        "src/shop/ledger.py:131:        raise LedgerLocked(f'ledger is open in {owner}')",
    )
    for needle in needles:
        hits.insert(rng.randrange(len(hits)), needle)
    return Printed("\n".join(hits) + "\n", needles, "Who opens the ledger, and what if it is locked?")
