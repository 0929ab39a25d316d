"""Cases from agents' sessions: which rows of an output were used, and how many of them a ranking keeps."""

import json
from pathlib import Path

import numpy as np

from evaluation.used_cases import UsedOutput, engine_likelihoods, outputs, sampled, used_recall
from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, CallOutput, Transcript

ROWS = [f"    value_{n} = compute_the_value(of={n}, with_limit={n * 7})" for n in range(120)]
USED = ROWS[40].strip()


def session(rows: list[str], said: str = "") -> Transcript:
    numbered = "\n".join(f"{n:6}→{row}" for n, row in enumerate(rows, start=1))
    ask = AgentRequest(user=["set the limit"], is_user_turn=True, said="I read it.", calls=[READ])
    edit = AgentCall("e", "Edit", json.dumps({"old_string": said}))
    return Transcript("any", "s", [ask, AgentRequest(outputs=[CallOutput("c", numbered)], calls=[edit])])


READ = AgentCall("c", "Read", json.dumps({"file_path": "src/values.py"}))


def test_an_output_is_a_case_without_its_numbers_and_with_what_the_agent_was_doing() -> None:
    (output,) = outputs(session([*ROWS, "}"], USED))

    assert output.case.text.split("\n")[40] == ROWS[40]
    assert (output.case.kind, output.case.source_type, output.case.gold) == ("used", "code", (40,))
    assert output.case.goal == "set the limit"
    assert (output.context.tool, output.context.path, output.context.said) == ("Read", "src/values.py", "I read it.")
    assert output.countable == tuple(range(120))


def test_short_outputs_are_left_out_and_unused_ones_are_not() -> None:
    assert list(outputs(session(ROWS[:10], USED))) == []
    assert [output.case.gold for output in outputs(session(ROWS))] == [()]


def test_recall_counts_used_rows_for_their_tokens() -> None:
    def likeliest_is(row: int):
        def likelihoods(output: UsedOutput) -> np.ndarray:
            return np.array([1.0 if at == row else 0.0 for at in range(len(ROWS))])

        return likelihoods

    found = [list(outputs(session(ROWS, USED)))]

    assert used_recall(found, likeliest_is(40)).per_output == (1.0, 1.0, 1.0)
    assert used_recall(found, likeliest_is(40)).per_session == (1.0, 1.0, 1.0)
    # Then the first rows come first, and row 40 of 120 is among the first half alone.
    assert used_recall(found, likeliest_is(119)).per_output == (1.0, 0.0, 0.0)
    assert used_recall([list(outputs(session(ROWS)))], likeliest_is(1)).outputs == 0


def test_the_engine_says_how_likely_each_row_is_used() -> None:
    (output,) = outputs(session(ROWS, USED))
    likely = engine_likelihoods(output)

    assert len(likely) == len(ROWS)
    assert likely.min() > 0 and likely.max() < 1


def test_sessions_are_read_from_folders(tmp_path: Path) -> None:
    records = [
        {"type": "user", "uuid": "1", "sessionId": "s", "message": {"role": "user", "content": "set the limit"}},
        {"type": "assistant", "uuid": "2", "sessionId": "s", "message": {"id": "m1", "role": "assistant", "content": [
            {"type": "tool_use", "id": "c", "name": "Read", "input": {"file_path": "a.py"}}]}},
        {"type": "user", "uuid": "3", "sessionId": "s", "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": "\n".join(ROWS)}]}},
        {"type": "assistant", "uuid": "4", "sessionId": "s", "message": {"id": "m2", "role": "assistant", "content": [
            {"type": "text", "text": USED}]}},
    ]  # fmt: skip
    (tmp_path / "s.jsonl").write_text("\n".join(map(json.dumps, records)), "utf-8")
    (found,) = sampled([tmp_path], 10, seed=7)

    assert [output.case.gold for output in found] == [(40,)]
