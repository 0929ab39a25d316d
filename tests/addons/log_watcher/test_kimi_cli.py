"""What Kimi CLI writes of its tokens, among much that is none of our business."""

import pytest

from kimi_proxy.addons.log_watcher.log_watcher import ContinueCliLog, KimiCodeWire, KimiContext, KimiLog
from kimi_proxy.features.metering import LogCount

LOGGED = "2026-07-16 10:00:00.123 | DEBUG    | kimi_cli.soul.context:update_token_count:243 - "


def test_the_log_tells_a_count_without_a_conversation():
    line = f"{LOGGED}Updating token count in context: 24804"

    assert KimiLog().feed(line) == LogCount("kimi_log", 24_804)


@pytest.mark.parametrize(
    "line",
    [
        f"{LOGGED}Appending message(s) to context: 24804",
        f"{LOGGED}Updating token count in context: many",
        f"{LOGGED}Updating token count in context: 99999999999999999",
        'said: "Updating token count in context: 5" and more',
        "",
    ],
)
def test_other_lines_of_the_log_tell_nothing(line: str):
    assert KimiLog().feed(line) is None


def test_a_usage_record_is_the_count_of_its_conversation():
    assert KimiContext("abc").feed('{"role": "_usage", "token_count": 42}') == LogCount(
        "kimi_context", 42, conversation="abc"
    )


@pytest.mark.parametrize(
    "line",
    [
        '{"role": "_checkpoint", "id": 5}',
        '{"role": "user", "content": "{\\"role\\": \\"_usage\\", \\"token_count\\": 42}"}',
        '{"role": "user", "content": "say \\"_usage\\"", "token_count": 42}',
        '{"role": "_usage", "token_count": -1}',
        '{"role": "_usage", "token_count": true}',
        '{"role": "_usage", "token_count": 1e9}',
        '{"role": "_usage", "token_count": 42',
        '["_usage"]',
    ],
)
def test_other_records_tell_nothing(line: str):
    assert KimiContext("abc").feed(line) is None


def test_kimi_code_counts_a_conversation_after_each_answer():
    """As version 2.1 wrote it."""
    reader = KimiCodeWire("session_2cbf")
    lines = [
        '{"type":"usage.record","agentId":"main","usage":{"inputOther":1234,"output":56},"time":1794796478412}',
        '{"type":"token_counting.measured","agentId":"main","length":4,"tokens":1290,"time":1794796478413}',
        '{"type":"context.append","text":"\\"token_counting.measured\\""}',
        '{"type":"token_counting.measured","tokens":"many"}',
    ]

    counted = LogCount("kimi_code", 1290, conversation="session_2cbf")
    assert [reader.feed(line) for line in lines] == [None, counted, None, None]


def test_continue_on_the_command_line_counts_before_each_request():
    """As version 1.5 wrote it."""
    reader = ContinueCliLog()
    head = "2026-11-16 02:35:12.159 [60a9fad2] [debug]: Context usage check "
    counted = head + '{"inputTokens":881,"historyTokens":8,"contextLimit":200000,"shouldCompact":false}'

    assert reader.feed(counted) == LogCount("continue_cli", 881, 200_000)
    assert reader.feed(head + '{"inputTokens":0,"contextLimit":200000}') is None
    assert reader.feed(head + "{broken}") is None
