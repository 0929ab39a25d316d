"""pi: `~/.pi/agent/sessions/**/*.jsonl`, a header and the entries of a tree, read in the order of writing."""

from collections.abc import Iterable, Iterator, Mapping

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import (
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    entry,
    items,
    mapping,
    seconds,
    string,
)

AGENT = "pi"

_KEYS = ("type", "id", "timestamp", "message", "summary", "content")


def read(lines: Iterable[bytes], name: str) -> Iterator[Transcript]:
    builder = TranscriptBuilder(AGENT, name)
    for line in lines:
        record = entry(line, _KEYS)
        kind = record.get("type")
        at = seconds(record.get("timestamp"))
        if kind == "session":
            builder.transcript.id = string(record.get("id")) or name
        elif kind == "message":
            _take_message(builder, mapping(record.get("message")), at)
        elif kind == "custom_message":
            builder.add_user(record.get("content"), at, is_person=False)
        elif kind == "compaction":
            builder.start_over()
            builder.add_user(record.get("summary"), at, is_person=False)
    return builder.finish()


def _take_message(builder: TranscriptBuilder, message: Mapping[str, JsonValue], at: float) -> None:
    role = message.get("role")
    if role == "user":
        builder.add_user(message.get("content"), at)
    elif role == "toolResult":
        builder.add_output(message.get("toolCallId"), message.get("content"), message.get("isError") is True, at)
    elif role == "bashExecution":  # a command of the user, whose output the model reads
        builder.add_user(f"$ {string(message.get('command'))}\n{string(message.get('output'))}", at)
    elif role == "assistant":
        _take_answer(builder, message, at)


def _take_answer(builder: TranscriptBuilder, message: Mapping[str, JsonValue], at: float) -> None:
    builder.model = string(message.get("model")) or builder.model
    # Each assistant message is one answer, even one that has called nothing.
    key = str(len(builder.transcript.requests))
    request = builder.answer(key, at)
    for part in map(mapping, items(message.get("content"))):
        kind = part.get("type")
        if kind == "text":
            builder.add_text(part.get("text"), key, at)
        elif kind == "thinking":
            builder.add_thinking(part.get("thinking"), key, at)
        elif kind == "toolCall":
            builder.add_call(part.get("id"), part.get("name"), part.get("arguments"), key, at)
    if usage := mapping(message.get("usage")):
        read = usage.get("cacheRead")
        written = usage.get("cacheWrite")
        request.usage = ProviderUsage.from_counts(usage.get("input"), read, written, usage.get("output"))
