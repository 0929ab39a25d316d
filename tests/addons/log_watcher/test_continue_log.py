"""Continue's block of token counts, as it is written and as it may be cut."""

import pytest

from kimi_proxy.addons.log_watcher.log_watcher import ContinueLog
from kimi_proxy.features.metering import LogCount

BLOCK = """\
[2026-11-02T10:00:00] Error: Not enough context available to include the system message, last user message, and tools.
        There must be at least 1000 tokens remaining for output.
        Request had the following token counts:
        - contextLength: 32768
        - counting safety buffer: 655
        - tools: ~9500
        - system message: ~24000
        - max output tokens: 4096
    at compileChatMessages (core/llm/countTokens.ts:400:11)
"""


def counts(log: ContinueLog, text: str) -> list[LogCount]:
    return [count for line in text.splitlines() if (count := log.feed(line)) is not None]


def test_the_tokens_of_a_request_are_its_tools_and_its_messages_and_not_the_room_for_the_answer():
    assert counts(ContinueLog(), BLOCK) == [LogCount("continue", 33_500, 32_768)]


def test_a_block_at_the_end_of_the_file_counts_once_nothing_more_comes():
    log, block = ContinueLog(), BLOCK.rpartition("    at ")[0]

    assert counts(log, block) == []
    assert log.idle() == LogCount("continue", 33_500, 32_768)
    assert log.idle() is None


def test_two_blocks_in_a_row_are_two_counts():
    other = BLOCK.replace("~24000", "~25000").rpartition("    at ")[0]

    assert [count.tokens for count in counts(ContinueLog(), other + BLOCK)] == [34_500, 33_500]


def test_a_request_refused_for_its_last_message_had_at_least_all_the_room_there_is():
    block = BLOCK.replace("~9500", "~500").replace("~24000", "~2000")

    assert counts(ContinueLog(), block) == [LogCount("continue", 32_768 - 655 - 1000, 32_768)]


def test_a_version_that_counts_the_last_message_is_read_with_it():
    added = "        - last user or tool + tool call message tokens: ~9000\n        - max output"
    block = BLOCK.replace("        - max output", added)

    assert [count.tokens for count in counts(ContinueLog(), block)] == [42_500]


def test_a_block_on_one_line_of_json_is_read_too():
    line = '{"level":"error","message":"' + BLOCK.replace("\n", "\\n") + '"}'

    assert [count.tokens for count in counts(ContinueLog(), line)] == [33_500]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Request had the following token counts:\n",
        "Request had the following token counts:\n- contextLength: 100\nnext",
        "Request had the following token counts:\n- tools: ~many\n- system message: ~5\nnext",
        "- tools: ~9500\n- system message: ~24000\nnext",
        "Request had the following token counts:\n- tools: ~99999999999999999999\nnext",
        "\ufffd\ufffd\x00 garbage\n" * 50,
    ],
)
def test_what_is_no_such_block_counts_nothing(text: str):
    log = ContinueLog()

    assert (counts(log, text), log.idle()) == ([], None)


def test_a_block_without_end_is_not_kept():
    log = ContinueLog()
    endless = "Request had the following token counts:\n" + "".join(f"- {'x' * (n % 30 + 1)}: 1\n" for n in range(500))

    assert len(counts(log, endless)) == 1
