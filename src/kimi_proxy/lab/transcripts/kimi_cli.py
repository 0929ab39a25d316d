"""Kimi CLI: `~/.kimi/sessions/*/*/context.jsonl`, the conversation itself with `_usage` and `_checkpoint` among it."""

from collections.abc import Iterable, Iterator, Mapping

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import (
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    entry,
    items,
    mapping,
    number,
    text_of,
)

AGENT = "Kimi CLI"

_KEYS = ("role", "content", "tool_calls", "tool_call_id", "token_count")


def read(lines: Iterable[bytes], name: str) -> Iterator[Transcript]:
    builder = TranscriptBuilder(AGENT, name)
    for line in lines:
        record = entry(line, _KEYS)
        role = record.get("role")
        content = record.get("content")
        if role == "_system_prompt":
            builder.transcript.instructions = text_of(content)
        elif role == "user":
            words = text_of(content)
            builder.add_user(words, is_person=not words.startswith("<system"))
        elif role == "tool":
            builder.add_output(record.get("tool_call_id"), content)
        elif role == "assistant":
            _take_answer(builder, record)
        elif role == "_usage" and builder.transcript.requests:
            _count(builder.transcript, number(record.get("token_count")))
    return builder.finish()


def _take_answer(builder: TranscriptBuilder, record: Mapping[str, JsonValue]) -> None:
    content = record.get("content")
    builder.answer()
    for part in [{"type": "text", "text": content}] if isinstance(content, str) else map(mapping, items(content)):
        if part.get("type") == "think":
            builder.add_thinking(part.get("think"))
        else:
            builder.add_text(part.get("text"))
    for call in map(mapping, items(record.get("tool_calls"))):
        function = mapping(call.get("function"))
        builder.add_call(call.get("id"), function.get("name"), function.get("arguments"))


def _count(transcript: Transcript, tokens: int) -> None:
    """A `_usage` has the tokens of the whole conversation, but not how many of them were cached."""
    request = transcript.requests[-1]
    if request.usage is None and tokens:
        request.usage = ProviderUsage(input=tokens)
