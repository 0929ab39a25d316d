"""Prune, recover and explain, without a server."""

import json
import re
from pathlib import Path

import pytest
from tests.support.deep import deep

from .conftest import Cli

GOAL = "why was the payment refused?"
LOG = b"".join(
    b"2026-01-02 03:04:05 ERROR payment 77 refused: card expired\n"
    if i == 200
    else b"2026-01-02 03:04:%02d INFO GET /static/page%d.css 200\n" % (i % 60, i * 7919 % 997)
    for i in range(400)
)
NOT_UTF8 = LOG.replace(b"page1", b"p\xe9ge\xff\x00\r")


def pruned(cli: Cli, text: bytes = LOG, *options: str) -> dict[str, object]:
    answer: dict[str, object] = json.loads(cli("prune", "-", "--goal", GOAL, "--json", *options, stdin=text).stdout)
    return answer


def test_the_lines_that_matter_are_printed_and_the_saving_is_told_beside_them(cli: Cli):
    (cli.here / "app.log").write_bytes(LOG)

    done = cli("prune", "app.log", "--goal", GOAL)

    assert done.returncode == 0
    assert b"card expired" in done.stdout
    assert "⟦PRUNÉ: prune_id=prn_".encode() in done.stdout
    assert len(done.stdout) < len(LOG) * 0.7
    assert re.fullmatch(
        rb"kimi-proxy: \d+ of 401 lines of logs kept, \d+ of \d+ tokens; restore the rest: "
        rb"kimi-proxy recover prn_\w{16}\n",
        done.stderr,
    )


def test_standard_input_is_pruned_with_a_dash_and_without(cli: Cli):
    with_dash = cli("prune", "-", "--goal", GOAL, stdin=LOG)
    without = cli("prune", "--goal", GOAL, stdin=LOG)

    assert with_dash.stdout == without.stdout != LOG


def test_the_limits_hold(cli: Cli):
    stats = pruned(cli, LOG, "--max-prune-ratio", "0.5", "--min-keep-lines", "300")["stats"]

    assert isinstance(stats, dict)
    assert stats["original_lines"] == 401
    assert stats["kept_lines"] >= 300


def test_markers_can_be_left_out_and_numbers_put_in(cli: Cli):
    done = cli("prune", "-", "--goal", GOAL, "--no-markers", "--annotate", stdin=LOG)

    lines = done.stdout.decode().split("\n")
    assert "201│ 2026-01-02 03:04:05 ERROR payment 77 refused: card expired" in lines
    assert all(re.match(r"\d+│ ", line) for line in lines)


def test_a_short_text_comes_back_as_it_is_and_the_command_says_so(cli: Cli):
    done = cli("prune", "-", "--goal", "anything", stdin=b"one\r\ntwo")

    assert (done.returncode, done.stdout) == (0, b"one\r\ntwo")
    assert done.stderr.endswith(b"nothing cut\n")


@pytest.mark.parametrize("text", [LOG, LOG[:-1], NOT_UTF8, b"", b"\n", b"\xff"], ids=range(6))
def test_everything_comes_back_byte_for_byte(cli: Cli, text: bytes):
    prune_id = str(pruned(cli, text)["prune_id"])

    assert cli("recover", prune_id).stdout == text


def test_ranges_come_back_as_sed_would_print_them(cli: Cli):
    prune_id = str(pruned(cli)["prune_id"])
    lines = LOG.splitlines(keepends=True)

    assert cli("recover", prune_id, "10-12,3").stdout == b"".join([*lines[9:12], lines[2]])
    assert cli("recover", prune_id, "398-").stdout == b"".join(lines[397:])
    assert cli("recover", prune_id, "5", "--numbers").stdout == "5│ ".encode() + lines[4]


def test_recover_prints_the_contract_s_object_for_programs(cli: Cli):
    prune_id = str(pruned(cli)["prune_id"])

    assert json.loads(cli("recover", prune_id, "2-3", "--json").stdout) == {
        "raw_text": "\n".join(LOG.decode().split("\n")[1:3]),
        "metadata": {
            "prune_id": prune_id,
            "ranges": [{"start_line": 2, "end_line": 3}],
            "line_numbering": "original",
            "numbering": "lines",
        },
    }


def test_explain_tells_of_every_line_why_it_stayed_or_went(cli: Cli):
    answer = pruned(cli)
    prune_id = str(answer["prune_id"])

    rows = cli("explain", prune_id).stdout.decode().split("\n")
    told = json.loads(cli("explain", prune_id, "--json").stdout)

    assert len(rows) == 402  # each row ends in a newline
    assert re.match(r"  201 \+ \d\.\d\d  2026-01-02 03:04:05 ERROR payment 77 refused: card expired  ← \w", rows[200])
    stats = answer["stats"]
    assert isinstance(stats, dict)
    assert sum(row[6:7] == "-" for row in rows) == stats["pruned_lines"]
    assert (told["prune_id"], told["goal_hint"], told["source_type"]) == (prune_id, GOAL, "logs")
    assert [line["line"] for line in told["lines"]] == list(range(1, 402))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("recover", "prn_0000000000000000"), b"unknown id"),
        (("recover", "../../etc/passwd"), b"unknown id"),
        (("explain", "prn_0000000000000000"), b"unknown id"),
        (("prune", "absent.txt", "--goal", "x"), b"absent.txt"),
        (("prune", "-"), b"--goal"),
        (("prune", "-", "--goal", "x", "--max-prune-ratio", "2"), b"--max-prune-ratio"),
        (("prune", "-", "--goal", "x", "--source-type", "poem"), b"poem"),
    ],
)
def test_what_is_refused_says_why_without_a_traceback(cli: Cli, arguments: tuple[str, ...], complaint: bytes):
    done = cli(*arguments)

    assert (done.returncode, done.stdout) == (2, b"")
    assert complaint in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot read {file}: No such file or directory; give a file, or - for standard input"),
        (bytes(range(256)) * 20, "{file} is a binary file: prune needs a text file"),
        (
            b"x\n" * 1_000_001,
            "{file} has 2,000,002 characters, more than max_input_chars (2,000,000): "
            "prune it in parts, such as: head -n 20000 {file} | kimi-proxy prune -",
        ),
    ],
)
def test_a_file_that_cannot_be_pruned_is_answered_in_one_line(cli: Cli, content: bytes | None, told: str):
    """Usage lines came first, and a huge file was printed whole."""
    file = cli.here / "given"
    if content is not None:
        file.write_bytes(content)
    done = cli("prune", str(file), "--goal", "x")

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"kimi-proxy: {told.format(file=file)}\n"


def test_an_empty_file_is_called_empty(cli: Cli):
    (cli.here / "empty").write_bytes(b"")
    done = cli("prune", "empty", "--goal", "x")

    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"kimi-proxy: the text is empty: there is nothing to prune\n"


def test_a_bad_range_is_refused_with_an_example(cli: Cli):
    done = cli("recover", str(pruned(cli)["prune_id"]), "20-10")

    assert done.returncode == 2
    assert b"is not a line range" in done.stderr


def test_a_reader_that_leaves_early_is_no_error_to_talk_about(cli: Cli):
    prune_id = str(pruned(cli, LOG * 20)["prune_id"])

    with cli.started("recover", prune_id) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_the_same_question_gets_the_same_id_from_another_process(cli: Cli):
    assert pruned(cli)["prune_id"] == pruned(cli)["prune_id"]


def test_a_store_that_cannot_be_written_leaves_the_text_whole_and_says_so(cli: Cli, tmp_path: Path):
    (tmp_path / "state").write_text("a file where the directory should be")

    done = cli("prune", "-", "--goal", GOAL, stdin=LOG)

    assert (done.returncode, done.stdout) == (0, LOG)
    assert b"recovery_unavailable" in done.stderr


@deep("it needs a text that takes seconds to prune")
def test_a_person_sees_a_bar_while_a_large_text_is_pruned(cli: Cli):
    (cli.here / "large.log").write_bytes(LOG * 40)
    status, seen = cli.watched("prune", "large.log", "--goal", GOAL)

    assert b"pruning" in seen
    assert status == 0
