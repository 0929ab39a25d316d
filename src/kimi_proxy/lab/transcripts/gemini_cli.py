"""Gemini CLI: `~/.gemini/tmp/*/chats/session-*`, a line for each change of a message, or one JSON document."""

from collections.abc import Iterable, Iterator, Mapping

from kimi_proxy.core.json import JsonValue
from kimi_proxy.lab.transcripts.transcript import (
    MAX_SESSION_CHARS,
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    entry,
    items,
    mapping,
    number,
    seconds,
    string,
)

AGENT = "Gemini CLI"

_KEYS = ("sessionId", "kind", "id", "timestamp", "type", "content", "toolCalls", "thoughts", "tokens", "model", "$set")


def read(lines: Iterable[bytes], name: str) -> Iterator[Transcript]:
    builder = TranscriptBuilder(AGENT, name)
    messages: dict[str, Mapping[str, JsonValue]] = {}  # a message is written again whenever it grows
    size = 0
    for line in lines:
        size += len(line)
        record = entry(line, _KEYS) if size <= MAX_SESSION_CHARS else {}
        if "sessionId" in record:
            builder.transcript.id = string(record.get("sessionId")) or name
            builder.transcript.is_sidechain |= record.get("kind") == "subagent"
        if "id" in record:
            messages[string(record.get("id"))] = record
        elif history := items(mapping(record.get("$set")).get("messages")):
            # A rewritten history is the result of a compression. Its new messages hold the summary.
            new = (message for message in map(mapping, history) if string(message.get("id")) not in messages)
            _take_all(builder, messages)
            messages = {f"{at}": {**message, "type": "summary"} for at, message in enumerate(new)}
            builder.start_over()
    _take_all(builder, messages)
    return builder.finish()


def read_chat(chat: Mapping[str, JsonValue], name: str) -> Iterator[Transcript]:
    """Yield the session that `{"sessionId": …, "messages": […]}` is."""
    builder = TranscriptBuilder(AGENT, string(chat.get("sessionId")) or name)
    _take_all(builder, {f"{at}": mapping(message) for at, message in enumerate(items(chat.get("messages")))})
    return builder.finish()


def _take_all(builder: TranscriptBuilder, messages: Mapping[str, Mapping[str, JsonValue]]) -> None:
    for key, message in messages.items():
        kind = message.get("type")
        at = seconds(message.get("timestamp"))
        if kind in ("user", "summary"):
            builder.add_user(message.get("content"), at, is_person=kind == "user")
        elif kind == "gemini":
            _take_answer(builder, message, key, at)


def _take_answer(builder: TranscriptBuilder, message: Mapping[str, JsonValue], key: str, at: float) -> None:
    builder.model = string(message.get("model")) or builder.model
    request = builder.answer(key, at)
    builder.add_text(message.get("content"), key, at)
    for thought in map(mapping, items(message.get("thoughts"))):
        builder.add_thinking(f"{string(thought.get('subject'))}\n{string(thought.get('description'))}\n", key, at)
    calls = list(map(mapping, items(message.get("toolCalls"))))
    for call in calls:
        builder.add_call(call.get("id"), call.get("name"), call.get("args"), key, at)
    for call in calls:
        done = seconds(call.get("timestamp")) or at
        builder.add_output(call.get("id"), _output_of(call), call.get("status") == "error", done)
    if tokens := mapping(message.get("tokens")):
        cached = number(tokens.get("cached"))
        plain = max(number(tokens.get("input")) + number(tokens.get("tool")) - cached, 0)
        written = number(tokens.get("output")) + number(tokens.get("thoughts"))
        request.usage = ProviderUsage(plain, cached, 0, 0, written)


def _output_of(call: Mapping[str, JsonValue]) -> str:
    """Return the result of a call for the model: the function responses, and texts next to them."""
    texts: list[str] = []
    result = call.get("result")
    for part in [mapping(result)] if isinstance(result, Mapping) else map(mapping, items(result)):
        response = mapping(mapping(part.get("functionResponse")).get("response"))
        texts.append(string(response.get("output")) or string(response.get("error")) or string(part.get("text")))
    return "\n".join(filter(None, texts)) or string(result)
