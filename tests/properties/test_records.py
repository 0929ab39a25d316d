"""The guarantees of a choice of records, for any values, any form and any budget."""

import csv
import io
import json
import math
import random
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from xml.sax.saxutils import escape, quoteattr

import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import often

from kimi_proxy.core import markers, tokens
from kimi_proxy.core.config.servers import MaskingSettings
from kimi_proxy.core.prune import Options, Origin, Question, rows_of
from kimi_proxy.features import masking
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.records.choose import Ranking
from kimi_proxy.features.records.fitting import write_by_chars
from kimi_proxy.features.records.read import read
from kimi_proxy.features.sanitizer.lossless import aged_form, bounded_form
from kimi_proxy.features.sanitizer.plan import result_of
from kimi_proxy.features.sanitizer.shorten import Task, shorten

MASK_ID, PRUNE_ID = "msk_0123456789abcdef", "prn_0123456789abcdef"
FAILURE = "connection to ledger failed"

Record = dict[str, object]

WORDS = ("amber", "basin", "cedar", "delta", "ember", "fable", "garnet", "harbor", "paid", "open")
NASTY = ('a "b" c', "x, y; z", "é∞ - -- ->", "# no comment", "k: v", "<b>&amp;", "]]>", "\\n \\", "- a", "'")


def _value(rng: random.Random) -> object:
    made = (
        rng.choice(WORDS),
        rng.randint(-10, 10**6),
        rng.random() < 0.5,
        None,
        rng.choice(NASTY),
        round(rng.random(), 2),
    )
    return rng.choice(made)


def _records(seed: int) -> list[Record]:
    """By a seed: to draw each value by itself takes ten times as long as the choice."""
    rng = random.Random(seed)
    keys = ("state", "total", "note")
    return [{"name": rng.choice(WORDS), **{key: _value(rng) for key in keys}} for _ in range(rng.randint(30, 80))]


RECORDS = st.integers(0, 2**32).map(_records)
GOALS = st.sampled_from(WORDS)


def as_csv(records: list[Record]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([list(records[0]), *(list(record.values()) for record in records)])
    return out.getvalue()


def as_xml(records: list[Record], seam: str) -> str:
    rows = (
        f"<row id={quoteattr(str(n))}>"
        + "".join(f"<{key}>{escape(str(value))}</{key}>" for key, value in row.items())
        + "</row>"
        for n, row in enumerate(records)
    )
    return seam.join(("<rows>", *rows, "</rows>"))


FORMS: Mapping[str, Callable[[list[Record]], str]] = {
    "json": json.dumps,
    "pretty json": lambda records: json.dumps({"rows": records, "page": 1}, indent=2),
    "json by key": lambda records: json.dumps({f"key {n}": record for n, record in enumerate(records)}, indent=1),
    "ndjson": lambda records: "\n".join(map(json.dumps, records)) + "\n",
    "csv": as_csv,
    "xml": lambda records: as_xml(records, "\n"),
    "xml in one line": lambda records: as_xml(records, ""),
    "yaml": lambda records: yaml.safe_dump({"rows": records, "page": 1}, sort_keys=False, allow_unicode=True),
}


def is_valid(form: str, text: str) -> bool:
    if form == "ndjson":
        return all(json.loads(line) is not None for line in text.split("\n") if line)
    if form == "csv":
        return len({len(row) for row in csv.reader(io.StringIO(text)) if row}) == 1
    if form.startswith("xml"):
        return ElementTree.fromstring(text) is not None
    if form == "yaml":
        return list(yaml.safe_load_all(text)) is not None
    return json.loads(text) is not None


def never() -> None:
    pass


def picked(text: str, goal: str, budget: int) -> str | None:
    root = read(text)
    assert root is not None
    gaps = Ranking(text, root, goal, budget, never).pick(budget, budget // 2)
    return None if gaps is None else write_by_chars(text, gaps, MASK_ID)


@often
@given(RECORDS, st.sampled_from(sorted(FORMS)), st.integers(300, 6000), GOALS)
def test_what_is_left_is_valid_and_within_its_budget_and_the_same_each_time(
    records: list[Record], form: str, budget: int, goal: str
):
    text = FORMS[form](records)
    left = picked(text, goal, budget)

    assert left == picked(text, goal, budget)
    if left is not None:
        assert is_valid(form, left)
        assert len(left) <= max(budget, len(text) if left == text else 0)


@often
@given(RECORDS, st.sampled_from(sorted(FORMS)), st.integers(0, 29))
def test_a_record_that_failed_stays(records: list[Record], form: str, at: int):
    records[at] = {**records[at], "note": FAILURE}
    left = picked(FORMS[form](records), "", 2400)

    assert left is not None
    assert FAILURE in left


@often
@given(RECORDS, st.sampled_from(sorted(FORMS)), st.floats(0, 1), st.integers(0, 60), GOALS)
def test_a_prune_of_records_keeps_its_limits_and_every_marker_leads_back(
    records: list[Record], form: str, ratio: float, keep: int, goal: str
):
    text = FORMS[form](records)
    pruned = engine.prune(Question(text, goal, "code", Options(ratio, keep, 1000, False, True)), PRUNE_ID)

    assert pruned.pruned_lines <= math.floor(pruned.original_lines * ratio)
    assert tokens.count(pruned.text) <= tokens.count(text)
    if pruned.annotations:
        assert pruned.original_lines - pruned.pruned_lines >= keep
        assert is_valid(form, pruned.text)
    rebuilt, seam = pruned.text, "" if pruned.part_starts else "\n"
    rows = rows_of(text, pruned.part_starts)
    for annotation in pruned.annotations:
        cut = annotation.cut
        hidden = seam.join(rows[cut.start - 1 : cut.end])
        assert annotation.marker in rebuilt
        rebuilt = rebuilt.replace(_around(rebuilt, annotation.marker, seam), hidden, 1)
    assert rebuilt == text


def _around(text: str, marker: str, seam: str) -> str:
    """Return what stands in the place of the hidden lines, or parts: with what is written around the marker."""
    if seam:
        return marker
    start = text.index(marker)
    opening = text.rindex("<!--", 0, start) if text.startswith("<") else text.rindex('"', 0, start)
    closing = text.index("-->", start) + 3 if text.startswith("<") else text.index('"', start) + 1
    # A part ends where the next one begins: its separator went with it.
    return text[opening:closing] + ("" if text.startswith("<") or text[closing] != "," else ", ")


@often
@given(RECORDS, st.sampled_from(sorted(FORMS)), GOALS)
def test_chat_and_gateway_leave_valid_texts_that_come_back_whole(records: list[Record], form: str, goal: str):
    text = FORMS[form](records)
    done = shorten(Task(text, goal, Origin("bash"), True, 200, 200, b"seed"))
    cut = masking.plan_text(text, MaskingSettings(max_chars=1500, head_chars=750, tail_chars=750), goal)

    assert is_valid(form, done.shown)
    assert done.tokens_after <= done.tokens_before
    assert {hidden.text for hidden in done.hidden} <= {text}
    if isinstance(cut, masking.MaskCut):
        assert cut.text == text
        assert is_valid(form, cut.render(MASK_ID))
        assert len(cut.render(MASK_ID)) <= 1500 + 200
        marker = markers.read_mask(cut.render(MASK_ID))
        assert marker is not None
        assert cut.render(MASK_ID)[: marker.head_chars] == text[: marker.head_chars]


@often
@given(RECORDS, st.sampled_from(sorted(FORMS)), GOALS, st.integers(0, 29))
def test_hooks_and_limits_leave_valid_texts_with_what_failed_and_what_is_quoted(
    records: list[Record], form: str, goal: str, at: int
):
    records[at] = {**records[at], "note": FAILURE}
    records[-at - 1] = {**records[-at - 1], "note": "zebra-4711"}
    text = FORMS[form](records)
    result, asked = result_of(Origin("bash"), text), f'{goal} "zebra-4711"'
    unscored = Task(text, asked, Origin("bash"), True, 200, 200, b"seed", is_scored=False)
    limited = bounded_form(result, b"seed", 700, goal=asked) if tokens.count(text) > 700 else shorten(unscored)

    for done in (shorten(unscored), shorten(unscored, is_hurried=True), limited):
        assert done is not None
        assert is_valid(form, done.shown)
        assert FAILURE in done.shown
        assert "zebra-4711" in done.shown
        assert {hidden.text for hidden in done.hidden} <= {text}
    aged = aged_form(result, b"seed")
    if aged is not None and form in ("json", "pretty json", "json by key"):
        assert is_valid(form, aged.shown)
