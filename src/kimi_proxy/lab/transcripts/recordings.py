"""Recordings of our own (`[record]`): whole requests as a client sent them, of which only the new end counts."""

from collections.abc import Iterable, Iterator

from kimi_proxy.core.chat import Message, Request, Wire, parse
from kimi_proxy.core.errors import KimiProxyError
from kimi_proxy.features import recording
from kimi_proxy.features.recording import Recording
from kimi_proxy.lab.transcripts.transcript import (
    ProviderUsage,
    Transcript,
    TranscriptBuilder,
    entry,
    number,
    string,
)

AGENT = "kimi-proxy"
MAX_BYTES = 128 * 1024**2  # of the requests when each is written out; their lines only have what changed


def read(lines: Iterable[bytes], name: str) -> Iterator[Transcript]:
    try:
        recorded = recording.read(limit_lines(lines))
    except KimiProxyError:
        return iter(())
    transcript = transcript_of(recorded, name)
    return iter((transcript,) if transcript.requests else ())


def limit_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines until one is damaged, or the decoded requests would not fit into memory."""
    size = 0
    for line in lines:
        record = entry(line, ("recording", "same_head", "same_tail", "body"))
        size += number(record.get("same_head")) + number(record.get("same_tail")) + len(string(record.get("body")))
        if not record or size > MAX_BYTES:
            return
        yield line


def transcript_of(recorded: Recording, name: str) -> Transcript:
    builder = TranscriptBuilder(AGENT, name)
    builder.model = recorded.head.model
    known: list[int] = []
    for at, taken in enumerate(recorded.requests):
        if taken.status != 200:
            continue
        request = _request(taken.body, taken.wire)
        if request is None:
            continue
        if not known:
            tools = bytes(request.members.get("tools") or b"").decode("utf-8", "replace")
            builder.transcript.instructions = "\n".join([*(part.text for part in request.system), tools])
            described = request.format.tools(request.json)
            builder.transcript.tools = {name: bytes(raw).decode("utf-8", "replace") for name, raw in described if name}
        known = _take_new(builder, request, known, taken.at)
        # The model's answer is in the next request.
        made = builder.answer(str(at), taken.at)
        if usage := taken.usage:
            plain = max(usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens, 0)
            made.usage = ProviderUsage(plain, usage.cached_tokens, usage.cache_write_tokens, 0, usage.output_tokens)
    return builder.transcript


def _request(body: str, wire: Wire) -> Request | None:
    try:
        return parse(body.encode("utf-8", "surrogatepass"), wire)
    except KimiProxyError:
        return None


def _take_new(builder: TranscriptBuilder, request: Request, known: list[int], at: float) -> list[int]:
    """Collect the messages that are new in this request, and return all of them by content."""
    # Not by their bytes: clients move the marks for the prompt cache to the end with every request.
    messages = [hash((m.role, *((p.kind, p.call_id, p.text) for p in m.parts))) for m in request.messages]
    pairs = enumerate(zip(known, messages, strict=False))
    shared = next((place for place, (one, other) in pairs if one != other), min(len(known), len(messages)))
    if shared < len(known) - 1:  # the last message may grow; more means another history
        builder.start_over()
        shared = 0
    for message in request.messages[shared:]:
        _take(builder, message, at)
    return messages


def _take(builder: TranscriptBuilder, message: Message, at: float) -> None:
    for part in message.parts:
        if part.kind == "tool_result":
            builder.add_output(part.call_id, part.text, part.failed, at)
        elif part.kind == "tool_call":
            builder.add_call(part.call_id, part.name, part.text)
        elif message.role == "assistant":
            builder.add_text(part.text)
        elif message.role not in ("system", "developer"):
            builder.add_user(part.text, at)
