"""A session as requests: what its agent must have sent to the provider, rebuilt from what it keeps on disk."""

from collections.abc import Iterator, Mapping

from kimi_proxy.core import json, tokens
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.wires.protocol import Usage
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.accounting import Prices
from kimi_proxy.features.models import known as known_models
from kimi_proxy.features.recording import RecordedRequest, Recording, RecordingHead
from kimi_proxy.lab.measured import READ_PRICE, price_of, write_price_of
from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, CallOutput, Transcript

MAX_CHARS = 200_000_000  # of all requests of a session, each written out; a longer session is played up to there
STEP_S = 10.0  # between requests, where the agent keeps no times
_MARK: JsonObject = {"cache_control": {"type": "ephemeral"}}
_FILLER = " …"  # one token


def recording_of(transcript: Transcript) -> Recording:
    """Return the session as a recording would have it.

    An agent keeps neither its tools nor, mostly, its instructions: the tools are those that it called, without their
    descriptions, and a filler stands for the rest of what the provider counted in the first request.
    """
    model = next((request.model for request in transcript.requests if request.model), "unknown")
    wire = Wire.MESSAGES if write_price_of(model) > 1 else Wire.CHAT
    found = known_models.find(model)
    usd, output = price_of(model)
    million = 1_000_000 * usd
    prices = Prices(million, million * READ_PRICE, million * write_price_of(model), million * output)
    requests = tuple(_requests(transcript, wire, model))
    return Recording(RecordingHead(model, found.window if found else None, prices), requests)


def _requests(transcript: Transcript, wire: Wire, model: str) -> Iterator[RecordedRequest]:
    shape = _Messages(transcript.has_tools) if wire is Wire.MESSAGES else _Chat(transcript.has_tools)
    head = {"model": model, **shape.beginning(_instructions(transcript), _tools(transcript))}
    opening = json.encode(head).decode()[:-1] + ', "messages": ['
    sent: list[str] = []
    left, at = MAX_CHARS, 0.0
    for request in transcript.requests:
        if request.is_compacted:
            sent.clear()
        new = [*shape.results(request.outputs), *shape.user(request.user)] or [*shape.user(["(continue)"])]
        body = opening + ", ".join([*shape.before(sent), *map(_text, new[:-1]), _text(shape.marked(new[-1]))]) + "]}"
        left -= len(body)
        if left < 0:
            return
        at = max(request.at, at + STEP_S) if not request.at else request.at
        yield RecordedRequest(at, wire, body, 200, _usage(request))
        sent += [*map(_text, new), _text(shape.answer(request))]


def _text(value: JsonValue) -> str:
    return json.encode(value).decode()


def _usage(request: AgentRequest) -> Usage | None:
    usage = request.usage
    if usage is None:
        return None
    return Usage(usage.prompt, usage.output, usage.cache_read, usage.cache_write_5m + usage.cache_write_1h)


def _instructions(transcript: Transcript) -> str:
    first = transcript.requests[0]
    known = sum(map(tokens.count, (transcript.instructions, *first.user, *(output.text for output in first.outputs))))
    counted = first.usage.prompt if first.usage else 0
    return transcript.instructions + _FILLER * max(0, counted - known)


def _tools(transcript: Transcript) -> list[str]:
    if not transcript.has_tools:
        return []
    return sorted({call.name for request in transcript.requests for call in request.calls if call.name})


class _Chat:
    """As OpenAI's chat completions have it."""

    def __init__(self, has_tools: bool) -> None:
        self._has_tools = has_tools

    def beginning(self, instructions: str, tools: list[str]) -> JsonObject:
        described: list[JsonValue] = [
            {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in tools
        ]
        self._system = _text({"role": "system", "content": instructions or "You are a coding agent."})
        return {"tools": described} if described else {}

    def before(self, sent: list[str]) -> list[str]:
        return [self._system, *sent]

    def results(self, outputs: list[CallOutput]) -> list[JsonObject]:
        if not self._has_tools:
            return [{"role": "user", "content": f"<output>\n{output.text}\n</output>"} for output in outputs]
        return [{"role": "tool", "tool_call_id": output.call_id, "content": output.text} for output in outputs]

    def user(self, texts: list[str]) -> list[JsonObject]:
        return [{"role": "user", "content": text} for text in texts]

    def marked(self, message: JsonObject) -> JsonObject:
        return message

    def answer(self, request: AgentRequest) -> JsonObject:
        calls: list[JsonValue] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in request.calls
        ]
        said: JsonObject = {"role": "assistant", "content": request.said}
        if not self._has_tools:
            return {**said, "content": "\n".join([request.said, *(call.arguments for call in request.calls)])}
        return {**said, "tool_calls": calls} if calls else said


class _Messages:
    """As Anthropic's messages have it, with a mark for the prompt cache at the end."""

    def __init__(self, has_tools: bool) -> None:
        self._has_tools = has_tools

    def beginning(self, instructions: str, tools: list[str]) -> JsonObject:
        described: list[JsonValue] = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
        system: JsonObject = {"type": "text", "text": instructions or "You are a coding agent.", **_MARK}
        return {"max_tokens": 1, "system": [system], **({"tools": described} if described else {})}

    def before(self, sent: list[str]) -> list[str]:
        return sent

    def results(self, outputs: list[CallOutput]) -> list[JsonObject]:
        if not self._has_tools:
            return self.user([f"<output>\n{output.text}\n</output>" for output in outputs])
        content: list[JsonValue] = [
            {
                "type": "tool_result",
                "tool_use_id": output.call_id,
                "content": [{"type": "text", "text": output.text}],
                **({"is_error": True} if output.failed else {}),
            }
            for output in outputs
        ]
        return [{"role": "user", "content": content}] if content else []

    def user(self, texts: list[str]) -> list[JsonObject]:
        content: list[JsonValue] = [{"type": "text", "text": text} for text in texts]
        return [{"role": "user", "content": content}] if content else []

    def marked(self, message: JsonObject) -> JsonObject:
        content = message["content"]
        if not isinstance(content, list):
            return message
        *others, last = content
        return {**message, "content": [*others, {**last, **_MARK} if isinstance(last, Mapping) else last]}

    def answer(self, request: AgentRequest) -> JsonObject:
        words = request.said or "(nothing)" if not request.calls else request.said
        said: list[JsonValue] = [{"type": "text", "text": words}] if words else []
        if not self._has_tools:
            texts = [request.said, *(call.arguments for call in request.calls)]
            return {"role": "assistant", "content": [{"type": "text", "text": "\n".join(texts)}]}
        calls = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": _given(call)} for call in request.calls
        ]
        return {"role": "assistant", "content": [*said, *calls]}


def _given(call: AgentCall) -> JsonValue:
    try:
        given = json.decode(call.arguments.encode("utf-8", "replace"))
    except ParseError:
        given = None
    return given if isinstance(given, Mapping) else {"input": call.arguments}
