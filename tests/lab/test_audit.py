"""Many sessions, audited."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.deep import deep
from tests.support.lab.sessions import claude_session, with_fields

from kimi_proxy.lab import audit_report
from kimi_proxy.lab.audit import Audit, ToolCost, audit, name_source
from kimi_proxy.lab.measured import PAUSE
from kimi_proxy.lab.transcripts.places import find


def sub_agent(folder: Path, session: str, name: str) -> Path:
    """Write what a sub-agent of a session did, in a file of its own."""
    file = claude_session(folder, name)
    with_fields(file, sessionId=session, isSidechain=True, agentId=name)
    return file


def audited(*folders: Path, processes: int = 1) -> Audit:
    return audit(find(map(name_source, folders)), lambda done, total: None, processes)


@deep("it starts two processes that read all sessions again")
def test_an_audit_is_the_same_in_one_process_and_in_two(tmp_path: Path):
    for at in range(3):
        claude_session(tmp_path / "mine", f"s{at}", turns=6 + at)
    seen: list[tuple[int, int]] = []

    one = audited(tmp_path / "mine")
    two = audit(find([name_source(tmp_path / "mine")]), lambda done, total: seen.append((done, total)), 2)

    assert audit_report.as_json(one) == audit_report.as_json(two)
    assert seen[-1][0] == seen[-1][1] > 0


def test_the_longest_copy_of_a_session_counts(tmp_path: Path):
    claude_session(tmp_path / "a", "s1", turns=4)
    claude_session(tmp_path / "b", "s1", turns=7)

    done = audited(tmp_path / "a", tmp_path / "b")

    assert [(session.source, session.requests) for session in done.sessions] == [("b", 7)]


def test_every_policy_is_told_by_source_and_in_all(tmp_path: Path):
    claude_session(tmp_path / "a", "s1")
    claude_session(tmp_path / "b", "s2")

    told = audit_report.as_json(audited(tmp_path / "a", tmp_path / "b"))

    assert list(told["sources"]) == ["a: Claude Code", "b: Claude Code"]
    assert [row["name"] for row in told["policies"]] == ["careful", "default", "deep"]
    assert all(row["saved_percent"] > 0 for row in told["policies"])
    assert told["requests"] == 16


def test_a_used_line_that_the_default_cuts_is_shown_with_the_answer_that_used_it(tmp_path: Path):
    claude_session(tmp_path / "a", "s1", used="I mean return answer_299(request.path, 299)", tool="Grep")

    done = audited(tmp_path / "a")

    (lost,) = done.sessions[0].lost
    assert (lost.request, lost.tool, lost.line) == (7, "Grep", "return answer_299(request.path, 299)")
    shown = "  s1 request 8, the answer used a line of Grep\n    return answer_299(request.path, 299)\n"
    assert shown in audit_report.as_text(done)


def test_the_page_needs_nothing_else_and_its_texts_are_escaped(tmp_path: Path):
    claude_session(tmp_path / "a<b>", "s<script>1")

    page = audit_report.as_html(audited(tmp_path / "a<b>"))

    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<svg") == 3
    assert "a&lt;b&gt;: Claude Code" in page


def test_misses_of_the_cache_are_told_with_cause_pause_and_cost(tmp_path: Path):
    claude_session(tmp_path / "a", "s1")

    done = audited(tmp_path / "a")
    (total,) = audit_report.as_json(done)["cache_misses"]
    (miss,) = audit_report.as_json(done)["details"][0]["cache_misses"]

    assert (total["cause"], total["times"], total["median_pause_s"]) == (PAUSE, 1, 660)
    assert (miss["request"], miss["cause"], miss["pause_s"], miss["tokens"]) == (6, PAUSE, 660, 34_600)
    assert miss["cost_usd"] == total["cost_usd"] == pytest.approx(34_600 * (3.75 - 0.3) / 1e6)
    assert f"  {PAUSE}      1        11 min  34,600" in audit_report.as_text(done)


def test_versions_of_an_agent_are_told_apart(tmp_path: Path):
    for at in range(12):
        with_fields(claude_session(tmp_path / "a", f"s{at}", turns=2), version=f"2.1.{at}")

    done = audited(tmp_path / "a")

    assert sorted(audit_report.as_json(done)["versions"]) == sorted(f"Claude Code 2.1.{at}" for at in range(12))
    text = audit_report.as_text(done)
    assert text.count("  Claude Code 2.1.") == 8
    assert "  others (4)" in text


def test_sub_agents_that_cache_for_an_hour_are_told_with_the_setting_that_changes_it(tmp_path: Path):
    file = claude_session(tmp_path / "a", "s1", turns=5)
    text = file.read_text().replace(
        '"cache_creation_input_tokens": ', '"cache_creation": {"ephemeral_1h_input_tokens": '
    )
    text = re.sub(r'(1h_input_tokens": (\d+))', r'\1}, "cache_creation_input_tokens": \2', text)
    file.write_text(text)
    assert "for an hour" not in audit_report.as_text(audited(tmp_path / "a"))

    with_fields(file, isSidechain=True, agentId="a1")

    text = audit_report.as_text(audited(tmp_path / "a"))
    assert "1 sub-agents of Claude Code cached for an hour" in text
    assert '"subagentPromptCacheTtl": "5m"' in text


def test_a_model_without_a_price_is_named(tmp_path: Path):
    file = claude_session(tmp_path / "a", "s1", turns=2)
    file.write_text(file.read_text().replace("claude-sonnet-4-5", "no-such-model"))

    assert "No list price is known for no-such-model: priced as" in audit_report.as_text(audited(tmp_path / "a"))


def test_no_line_of_the_report_is_wider_than_a_hundred_columns(tmp_path: Path):
    wide = tmp_path / ("a-folder-with-a-very-long-name-" * 4)
    claude_session(wide, "s1" * 60, used="I mean return answer_299(request.path, 299)", tool="Grep")
    claude_session(tmp_path / "b", "s2", turns=3)
    with_fields(claude_session(tmp_path / "b", "s3"), version="2.1.150-" + "x" * 80)

    text = audit_report.as_text(audited(wide, tmp_path / "b"))

    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("render", [audit_report.as_text, audit_report.as_html, audit_report.as_json])
def test_nothing_at_all_can_be_told_too(render: object):
    assert callable(render)
    assert render(Audit())


def test_tools_that_a_recording_describes_are_priced_with_their_calls():
    recording = Path(__file__).parents[1] / "recordings" / "debugging.jsonl"

    done = audited(recording)
    described = {one.name: (one.calls, usd) for one, usd in done.described_tools()}

    assert {"bash", "read_file"} <= described.keys()
    assert 0 < sum(usd for _, usd in described.values()) < done.cost_by_part()["fixed beginning"]
    assert described["bash"][0] > 0
    assert len(audit_report.as_json(done)["described_tools"]) == len(described)
    assert "Tools that every request describes\n  read_file" in audit_report.as_text(done)


def test_where_descriptions_are_not_kept_the_audit_says_where_they_are_shown(tmp_path: Path):
    claude_session(tmp_path / "a", "s1")

    assert "the dashboard's context map shows them live" in audit_report.as_text(audited(tmp_path / "a"))


def test_settings_that_are_off_are_shown_with_what_they_would_have_changed(tmp_path: Path):
    claude_session(tmp_path / "mine", "s1", thinking=3000)
    done = audited(tmp_path / "mine")

    shown = " ".join(audit_report.as_text(done).split())
    changed = done.options()["clear_thinking"]
    assert changed > 0
    assert f"Beyond default, in [cache]: clear_thinking = true would have saved {changed:,.2f} USD more" in shown
    assert audit_report.as_json(done)["options_usd"] == {name: round(usd, 6) for name, usd in done.options().items()}


def test_tools_that_were_never_called_come_with_the_setting_that_loads_them_on_demand():
    done = audited(Path(__file__).parents[1] / "recordings" / "debugging.jsonl")
    done.sessions[0].described |= {
        name: ToolCost(0.1, 9_000, 0) for name in ("mcp__issues__list", "Write", "take_photo")
    }

    advice = audit_report.as_text(done).partition("[deferred_tools] tools = ")[2].partition("]")[0]

    assert '"mcp__issues__*"' in advice and '"take_photo"' in advice
    assert '"Write"' not in advice and '"bash"' not in advice
    assert "take_photo" in audit_report.as_html(done)


def test_sub_agents_belong_to_their_session_and_are_none_themselves(tmp_path: Path):
    claude_session(tmp_path / "a", "s1")
    sub_agent(tmp_path / "a", "s1", "helper1")
    sub_agent(tmp_path / "a", "s1", "helper2")

    done = audited(tmp_path / "a")

    assert "\n1 session and 2 sub-agents of Claude Code: 24 requests" in audit_report.as_text(done)
    told = audit_report.as_json(done)
    assert (told["sessions"], told["sub_agents"], told["requests"]) == (1, 2, 24)
    assert told["sources"]["a: Claude Code"]["sessions"] == 1
    assert "  a: Claude Code (1)" in audit_report.as_text(audited(tmp_path / "a", claude_session(tmp_path / "b", "s2")))


def losing(*pairs: tuple[float, float]) -> Audit:
    """Return an audit of sessions that cost so much, and would have cost so much more with the default."""
    (one,) = audited(Path(__file__).parents[1] / "recordings" / "debugging.jsonl").sessions
    sessions = [
        replace(
            one,
            id=f"s{at}",
            cost_usd=cost,
            policies={name: replace(of, cost_usd=cost + more) for name, of in one.policies.items()},
        )
        for at, (cost, more) in enumerate(pairs)
    ]
    return Audit(sessions)


def test_a_session_loses_from_half_a_per_cent_and_one_cent_on():
    done = losing((10.0, 0.051), (10.0, 0.049), (1.0, 0.009), (1.5, 0.011), (10.0, -1.0))

    default = next(total for total in done.totals() if total.policy.name == "default")

    assert default.losing == 2 / 5
    assert [session.id for session in done.losers()] == ["s3", "s0"]


def test_what_a_sub_agent_loses_is_weighed_against_what_its_session_saves():
    done = losing((10.0, -1.0), (1.0, 0.5))
    done.sessions[1].id, done.sessions[1].is_sidechain = "s0/helper", True

    default = next(total for total in done.totals() if total.policy.name == "default")

    assert (default.losing, default.median, default.worst) == (0.0, 0.5 / 11, 0.5 / 11)


def test_a_session_whose_texts_are_longer_than_what_the_provider_counted_is_named(tmp_path: Path):
    """As after a proxy that has shortened what was sent, and not what the client stored."""
    claude_session(tmp_path / "a", "s1", grown=17_000)
    assert "disagree" not in audit_report.as_text(audited(tmp_path / "a"))
    claude_session(tmp_path / "a", "s1", grown=1_000)

    done = audited(tmp_path / "a")

    percent = 100 * sum(done.cost_by_part().values()) / done.cost_usd
    assert percent > 105
    text = " ".join(audit_report.as_text(done).split())
    assert f"These parts add up to {percent:.0f} % of the cost: the counts disagree." in text
    assert audit_report.as_json(done)["parts_percent"] == round(percent, 1)
    assert "the counts disagree" in audit_report.as_html(done)


def test_sessions_that_went_through_us_are_left_out_with_their_sub_agents(tmp_path: Path):
    claude_session(tmp_path / "a", "s1")
    claude_session(tmp_path / "a", "s2")
    sub_agent(tmp_path / "a", "s2", "helper")

    done = audited(tmp_path / "a").without({"s2"})

    assert [session.id for session in done.sessions] == ["s1"]
    told = " ".join(audit_report.as_text(done).split())
    assert "Left out: 1 session that went through kimi-proxy" in told
    assert "kimi-proxy report" in told
    assert audit_report.as_json(done)["left_out"] == 1
    assert "went through kimi-proxy" in audit_report.as_html(done)
