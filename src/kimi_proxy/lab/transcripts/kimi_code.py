"""Kimi Code: `~/.kimi-code/sessions/*/*/agents/*/wire.jsonl`, records of a conversation and the events of its steps."""

from collections.abc import Iterable, Iterator, Mapping

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import (
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    entry,
    mapping,
    seconds,
    string,
    text_of,
)

AGENT = "Kimi Code"

_KEYS = ("type", "time", "message", "event", "systemPrompt", "model", "modelAlias", "summary")


def read(lines: Iterable[bytes], name: str) -> Iterator[Transcript]:
    builder = TranscriptBuilder(AGENT, name)
    for line in lines:
        record = entry(line, _KEYS)
        kind = record.get("type")
        at = seconds(record.get("time"))
        if kind == "config.update":
            builder.transcript.instructions = string(record.get("systemPrompt")) or builder.transcript.instructions
            builder.model = string(record.get("modelAlias")) or builder.model
        elif kind == "llm.request":
            builder.model = string(record.get("model")) or builder.model
        elif kind == "context.append_message":
            _message(builder, mapping(record.get("message")), at)
        elif kind == "context.append_loop_event":
            _event(builder, mapping(record.get("event")), at)
        elif kind in ("context.apply_compaction", "context.clear"):
            builder.start_over()
            builder.add_user(record.get("summary"), at, is_person=False)
    return builder.finish()


def _message(builder: TranscriptBuilder, message: Mapping[str, JsonValue], at: float) -> None:
    """Skip the assistant's text: it is already in the events of its steps."""
    if message.get("role") == "user":
        text = text_of(message.get("content"))
        origin = string(mapping(message.get("origin")).get("kind")) or "user"
        builder.add_user(text, at, is_person=origin == "user" and not text.startswith("<system-reminder"))


def _event(builder: TranscriptBuilder, event: Mapping[str, JsonValue], at: float) -> None:
    kind = event.get("type")
    key = string(event.get("stepUuid")) or (string(event.get("uuid")) if str(kind).startswith("step.") else "") or None
    if kind == "content.part":
        part = mapping(event.get("part"))
        if part.get("type") == "think":
            builder.add_thinking(part.get("think") or part.get("text"), key, at)
        else:
            builder.add_text(part.get("text"), key, at)
    elif kind == "tool.call":
        builder.add_call(event.get("toolCallId"), event.get("name"), event.get("args"), key, at)
    elif kind == "tool.result":
        result = mapping(event.get("result"))
        text = text_of(result.get("output")) or text_of(event.get("result"))
        builder.add_output(event.get("toolCallId"), text, result.get("isError") is True, at)
    elif kind == "step.end" and (usage := mapping(event.get("usage"))):
        read = usage.get("inputCacheRead")
        written = usage.get("inputCacheCreation")
        builder.answer(key, at).usage = ProviderUsage.from_counts(
            usage.get("inputOther"), read, written, usage.get("output")
        )
