"""`kimi-proxy replay` as a person and a program run it."""

import json
from pathlib import Path

import pytest

from .conftest import Cli

RECORDING = Path(__file__).parent.parent / "recordings" / "log-hunt.jsonl"
MODEL = """
[models.cheap]
provider = "openai"
max_context_size = 200_000
input_usd_per_million = 0.1
"""


@pytest.fixture
def beginning(cli: Cli) -> Path:
    """The first five requests of the recording, after what it says of its model."""
    lines = RECORDING.read_text("utf-8").splitlines(keepends=True)
    (cli.here / "beginning.jsonl").write_text("".join(lines[:6]), "utf-8")
    return cli.here / "beginning.jsonl"


def test_a_person_reads_a_table(cli: Cli, beginning: Path):
    done = cli("replay", str(beginning))

    first, head, *rows = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert first.startswith("beginning.jsonl: 5 requests in ")
    assert first.endswith(", gpt-5, window of 32,768")
    assert head.split()[:2] == ["input", "plain"]
    assert [row.split("  ")[0] for row in rows] == ["off", "sanitizer", "sanitizer + compression"]


def test_a_program_reads_json(cli: Cli):
    told = json.loads(cli("replay", str(RECORDING), "--json").stdout)

    assert (told["file"], told["requests"], told["max_context"]) == ("log-hunt.jsonl", 19, 32_768)
    off, sanitizer, both = told["policies"]
    assert off["input_tokens"] == told["recorded"]["input_tokens"]
    assert sanitizer["cost_saved_percent"] > 0
    assert both["compressions"] >= 1


def test_another_model_has_another_window_and_other_prices(cli: Cli, beginning: Path):
    (cli.here / "mine.toml").write_text(MODEL)

    done = cli("replay", str(beginning), "--model", "cheap", "--json", env={"KIMI_PROXY_CONFIG": "mine.toml"})

    told = json.loads(done.stdout)

    assert (told["model"], told["max_context"], told["policies"][2]["compressions"]) == ("cheap", 200_000, 0)
    assert told["policies"][0]["cost_usd"] == round(told["policies"][0]["input_tokens"] / 1e7, 9)


def test_sessions_of_agents_are_played_beside_recordings(cli: Cli, beginning: Path):
    folder = cli.here / "sessions"
    folder.mkdir()
    about = {"sessionId": "s1", "timestamp": "2026-02-03T03:00:00Z"}
    usage = {"input_tokens": 3000, "output_tokens": 5}
    answer = {"id": "m1", "model": "claude-sonnet-4-5", "usage": usage, "content": [{"type": "text", "text": "done"}]}
    entries = [
        {**about, "type": "user", "message": {"role": "user", "content": "go"}},
        {**about, "type": "assistant", "message": answer},
    ]
    (folder / "s1.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    told = json.loads(cli("replay", str(folder), str(beginning), "--json").stdout)

    assert [(one["file"], one["requests"]) for one in told["sessions"]] == [("Claude Code s1", 1), (beginning.name, 5)]
    assert told["policies"][0]["requests"] == 6
    assert told["sessions"][0]["max_context"] == 200_000


def test_what_cannot_be_played_is_refused_in_one_line(cli: Cli):
    (cli.here / "not.jsonl").write_text('{"hello": 1}\n')
    for arguments, complaint in (
        (("replay", "absent.jsonl"), b"absent.jsonl"),
        (("replay", "not.jsonl"), b"no sessions found"),
        (("replay", str(RECORDING), "--model", "unknown"), b"unknown"),
    ):
        done = cli(*arguments)
        assert done.returncode == 2, done.stderr
        assert complaint in done.stderr
        assert b"Traceback" not in done.stderr
