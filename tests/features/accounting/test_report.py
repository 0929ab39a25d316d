"""Accounts summed up: nothing is lost between lines and totals, and a loss is shown as one."""

import csv
import io
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.features.accounting import (
    NAMES,
    SavingsLine,
    as_csv,
    as_json,
    as_text,
    by_model,
    by_project,
    sum_lines,
)

LINE = SavingsLine(
    reasons={"nothing_to_do": 2},
    session="ses_a",
    title="",
    directory="/src/shop",
    model="m",
    requests=3,
    tokens_before=1000,
    tokens_after=700,
    cached_tokens=100,
    cache_lost_tokens=50,
    recoveries=1,
    extra_turns=1,
    recovery_tokens=30,
    summaries=1,
    summary_tokens=20,
    net_saved_tokens=200,
    observed_tokens=0,
    cost_before_usd=0.5,
    cost_usd=0.4,
    net_saved_usd=0.1,
    cache_lost_usd=0.01,
    overhead_usd=0.02,
    cache_missed_usd=0.03,
    observed_usd=None,
)
LOSS = replace(
    LINE, session="ses_b", model="other", net_saved_tokens=-900, net_saved_usd=-0.2, reasons={"nothing_to_cut": 1}
)
UNPRICED = replace(LINE, session="ses_c", cost_before_usd=None, cost_usd=None, net_saved_usd=None)


def test_a_person_reads_the_sum_first_and_each_session_under_it():
    told = as_text([LINE, LOSS, UNPRICED], "2026-11-01T00:00:00Z").splitlines()

    assert told[0] == "9 requests in 3 sessions since 2026-11-01T00:00:00Z"
    assert " ".join(told[6].split()) == "saved after all -500 tokens (-16.7 %) -0.1000 USD (-10.0 %)"
    assert all("%" not in line for line in told[:6])
    assert told[7] == "nothing was saved because: nothing_to_do (4), nothing_to_cut (1)"
    assert [line.split()[0] for line in told[-3:]] == ["ses_a", "ses_b", "ses_c"]
    assert told[-2].split()[-1] == "-0.2000"
    assert told[-1].split()[-3:] == ["–", "–", "–"]


def test_nothing_is_told_as_nothing():
    assert as_text([], None) == "no requests\n"
    assert as_json([], None)["sessions"] == []


def test_a_program_reads_totals_models_and_sessions():
    told = as_json([LINE, LOSS, UNPRICED], None)

    totals = told["totals"]
    assert isinstance(totals, dict)
    assert (totals["sessions"], totals["requests"], totals["net_saved_tokens"]) == (3, 9, -500)
    assert (totals["net_saved_usd"], totals["reasons"]) == (-0.1, {"nothing_to_do": 4, "nothing_to_cut": 1})
    assert isinstance(told["models"], list)
    assert isinstance(told["sessions"], list)
    assert len(told["models"]) == 2
    assert len(told["sessions"]) == 3


def test_a_spreadsheet_reads_a_line_for_each_session_and_model_and_runs_none():
    rows = list(csv.DictReader(io.StringIO(as_csv([replace(LINE, title="=1+1"), LOSS]))))

    assert tuple(rows[0]) == (*NAMES, "reasons")
    assert (rows[0]["title"], rows[1]["net_saved_tokens"], rows[0]["reasons"]) == ("'=1+1", "-900", "nothing_to_do=2")


COUNTS = st.integers(-(10**9), 10**9)
LINES = st.lists(
    st.builds(replace, st.sampled_from([LINE, LOSS, UNPRICED]), requests=COUNTS, net_saved_tokens=COUNTS), max_size=8
)


@given(LINES)
def test_models_add_up_to_the_total(lines: list[SavingsLine]):
    assert sum_lines(by_model(lines)) == sum_lines(lines)


@given(LINES)
def test_projects_add_up_to_the_total(lines: list[SavingsLine]):
    assert sum_lines(by_project(lines)) == sum_lines(lines)
