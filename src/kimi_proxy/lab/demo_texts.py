"""The tool outputs of the demo day: code, a failing run, logs, a runbook, tickets. The same seed, the same texts."""

import json
from random import Random

PARTS = ("orders", "stock", "invoices", "vouchers", "returns", "mailing", "search", "exports", "accounts", "labels")
WHAT = ("line", "basket", "address", "discount", "parcel", "refund", "receipt", "batch", "ledger", "quote")
DONE = ("read", "checked", "stored", "matched", "sorted", "merged", "sent", "renewed", "counted", "closed")

VAT = '''\
def vat_of(lines: list[Line], rate: Decimal) -> Decimal:
    """The VAT of an invoice.

    The tax office wants the sum rounded once. We round every line, which is a cent off from three lines on.
    """
    total = Decimal(0)
    for line in lines:
        total += (line.net * rate).quantize(CENT, rounding=ROUND_HALF_UP)
    return total


def gross_of(lines: list[Line], rate: Decimal) -> Decimal:
    return sum((line.net for line in lines), Decimal(0)) + vat_of(lines, rate)
'''

VAT_MENDED = '''\
def vat_of(lines: list[Line], rate: Decimal) -> Decimal:
    """The VAT of an invoice: the sum is rounded once, as the tax office wants it."""
    net = sum((line.net for line in lines), Decimal(0))
    return (net * rate).quantize(CENT, rounding=ROUND_HALF_UP)
'''


def module(rng: Random, part: str, functions: int = 44) -> str:
    """A Python file of the shop; that of the invoices has a mistake in it."""
    head = [f'"""{part.capitalize()} of the shop."""', "", "from dataclasses import dataclass"]
    head += ["from decimal import ROUND_HALF_UP, Decimal", "", "from shop.core import Line, Store, clock", ""]
    head += ['CENT = Decimal("0.01")', ""]
    blocks = [_function(rng, part, number) for number in range(functions)]
    if part == "invoices":
        blocks.insert(functions * 3 // 5, VAT)
    return "\n".join([*head, "", *("\n\n".join(blocks)).split("\n"), ""])


def _function(rng: Random, part: str, number: int) -> str:
    done = rng.choice(DONE)
    what = rng.choice(WHAT)
    other = rng.choice(WHAT)
    name = f"{done}_{what}_{number:02d}"
    limit = rng.randrange(2, 90)
    body = [
        f"def {name}(store: Store, {what}_id: str) -> {what.capitalize()} | None:",
        f'    """The {what} that was {done} last, with its {other}."""',
        f'    found = store.get("{part}.{what}", {what}_id)',
        f"    if found is None or found.age_days(clock.today()) > {limit}:",
        "        return None",
        f"    if found.{other}_count > {rng.randrange(3, 40)} and not found.is_{done}:",
        f'        store.note("{part}.{what}.{done}", found.id, reason="{other}")',
        f"        return store.refresh(found, keep={limit})",
        "    return found",
    ]
    return "\n".join(body) + "\n"


def listing(rng: Random, word: str, hits: int = 90) -> str:
    """Return the output of a search."""
    rows = []
    for _ in range(hits):
        part = rng.choice(PARTS)
        done = rng.choice(DONE)
        what = rng.choice(WHAT)
        rows.append(f"shop/{part}.py:{rng.randrange(12, 620)}:    total = {word}({done}_{what}(store), rate)")
    rows += [f"shop/invoices.py:{418 + n}:{line}" for n, line in enumerate(VAT.splitlines()) if word in line]
    return "\n".join(sorted(rows))


def failing_run(rng: Random, tests: int = 240) -> str:
    """A run of the tests with one failure, near its end."""
    rows = [
        "============================= test session starts ==============================",
        "collected 241 items",
        "",
    ]
    for number in range(tests):
        part = rng.choice(PARTS)
        done = rng.choice(DONE)
        what = rng.choice(WHAT)
        rows.append(
            f"tests/test_{part}.py::test_the_{what}_is_{done}_{number:03d} PASSED [{number * 100 // tests:3d}%]"
        )
    rows.insert(171, "tests/test_invoices.py::test_the_vat_of_three_lines_is_rounded_once FAILED [ 71%]")
    rows += [
        "",
        "=================================== FAILURES ===================================",
        "_______________ test_the_vat_of_three_lines_is_rounded_once ________________",
        "",
        "    def test_the_vat_of_three_lines_is_rounded_once():",
        '        lines = [Line(name, Decimal("0.25")) for name in "abc"]',
        "",
        '>       assert vat_of(lines, Decimal("0.055")) == Decimal("0.04")',
        "E       AssertionError: assert Decimal('0.03') == Decimal('0.04')",
        "E        +  where Decimal('0.03') = vat_of([Line('a'), Line('b'), Line('c')], Decimal('0.055'))",
        "",
        "tests/test_invoices.py:212: AssertionError",
        "------------------------------ Captured log call -------------------------------",
        "WARNING  shop.invoices:invoices.py:423 invoice 1147 is off by 0.01 from the sum of its lines",
        "=========================== short test summary info ============================",
        "FAILED tests/test_invoices.py::test_the_vat_of_three_lines_is_rounded_once - AssertionError",
        "================== 1 failed, 240 passed in 38.21s ==================",
    ]
    return "\n".join(rows)


def passing_run(rng: Random) -> str:
    rows = [f"{'.' * 72} [{share:3d}%]" for share in (29, 59, 89)]
    return "\n".join([*rows, f"{'.' * 25} [100%]", f"241 passed in 3{rng.randrange(4, 9)}.1s", ""])


def service_log(rng: Random, lines: int = 520) -> str:
    """A morning of the shop's server, with one thing wrong in it."""
    rows = []
    second = 8 * 3600
    for number in range(lines):
        second += rng.randrange(1, 9)
        at = f"2026-03-02T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
        part = rng.choice(PARTS)
        done = rng.choice(DONE)
        what = rng.choice(WHAT)
        rows.append(f"{at} INFO  shop.{part} {what} {done} id={rng.randrange(10**5, 10**6)} ms={rng.randrange(2, 160)}")
        if number == lines * 2 // 3:
            rows += [
                f"{at} ERROR shop.invoices invoice 1147 cannot be booked: 0.01 is missing from the VAT",
                "Traceback (most recent call last):",
                '  File "shop/booking.py", line 88, in book',
                "    raise Unbalanced(invoice.id, missing)",
                "shop.booking.Unbalanced: invoice 1147 is off by 0.01",
            ]
    return "\n".join(rows)


def runbook(rng: Random, chapters: int = 14) -> str:
    """Return the shop's release runbook, chapter by chapter."""
    rows = ["# How we release", "", "Read the chapter that you need; the order is that of a release.", ""]
    for number in range(1, chapters + 1):
        part = rng.choice(PARTS)
        what = rng.choice(WHAT)
        done = rng.choice(DONE)
        rows += [f"## {number}. {part.capitalize()}: when a {what} is not {done}", ""]
        for step in range(1, 9):
            one = rng.choice(WHAT)
            two = rng.choice(PARTS)
            minutes = rng.randrange(2, 45)
            rows.append(
                f"{step}. Look at the {one} in {two}; if it was not {rng.choice(DONE)} within {minutes} minutes, "
                f"ask whoever keeps {two} before you go on, and write down what you saw."
            )
        rows.append("")
    rows += ["## 15. Release notes", "", "One line per change that a reader notices. Fixed amounts name the invoice."]
    return "\n".join(rows)


def tickets(rng: Random, count: int = 60) -> str:
    """Return the ticket desk's answer: JSON, as such services send."""
    rows = []
    for number in range(count):
        part = rng.choice(PARTS)
        what = rng.choice(WHAT)
        done = rng.choice(DONE)
        title = f"The {what} of {part} is not {done}"
        if number == count // 2:
            title = "Invoice 1147: the VAT is one cent off"
        text = f"Since {rng.randrange(1, 28)} February the {what} is {done} twice when {part} is busy. " * 3
        rows.append(
            {"id": 1100 + number, "title": title, "state": rng.choice(("open", "open", "closed")), "text": text}
        )
    return json.dumps({"tickets": rows}, indent=1)


def section(rng: Random, part: str, lines: int = 64) -> str:
    """Some lines of a file, few enough to be read whole."""
    whole = module(rng, part, functions=12).split("\n")
    return "\n".join(f"{number:4d}  {line}" for number, line in enumerate(whole[10 : 10 + lines], 411))
