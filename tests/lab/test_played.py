"""The benchmarks that play recorded sessions: through the proxy itself, and with a question for each call."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support.lab.sessions import claude_session, with_fields

BENCHMARKS = Path(__file__).parents[2] / "scripts" / "benchmarks"


def bench(*arguments: object) -> str:
    command = [sys.executable, str(BENCHMARKS), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(printed: str) -> dict[str, str]:
    found = (line.strip("| ").split(" | ") for line in printed.split("\n") if line.startswith("| "))
    return {cells[0]: cells[1] for cells in found if len(cells) == 2}


def test_a_recorded_session_is_played_through_the_proxy_and_its_account_agrees_with_the_bill(tmp_path: Path):
    session = claude_session(
        tmp_path / "sessions", "s1", turns=10, tool="Grep", used="return answer_299(request.path, 299)"
    )
    with_fields(session, version="2.1.200")
    lines = [json.loads(line) for line in session.read_text().splitlines()]
    for line in lines[16:]:  # at the ninth request the client has changed its first message
        usage = line["message"].get("usage")
        if usage and line is lines[17]:
            usage["cache_creation_input_tokens"] += usage["cache_read_input_tokens"] - 20_000
            usage["cache_read_input_tokens"] = 20_000
    session.write_text("".join(json.dumps(line) + "\n" for line in lines))

    told = rows(bench("played", tmp_path / "sessions", "--current"))

    assert told["sessions, requests"] == "1, 10"
    assert told["changes of the client's own"] == "1"
    assert told["used results harmed"].startswith("1 of 1")
    assert told["extra turns per 100"] == "10.00"
    assert told["warm prefixes, changed by us"].endswith(", 0")
    assert float(told["bill and account differ by"].split()[0].rstrip("%")) < 1


def test_a_question_for_each_recorded_call_is_paid_and_saves(tmp_path: Path):
    session = claude_session(tmp_path / "sessions", "s1", turns=10)
    said = session.read_text().replace('"answer ', '"I look for the place where answers are made, step ')
    session.write_text(said)

    printed = bench("questions", tmp_path / "sessions")

    assert "| Read | " in printed
    assert "Describing the parameter in three tools costs" in printed
