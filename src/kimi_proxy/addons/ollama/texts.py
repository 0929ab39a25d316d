"""Ollama's chat, which editors speak to a local server, as chat completions; and the way back for answers."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TypedDict

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.wires.protocol import DONE
from kimi_proxy.core.errors import ParseError, UpstreamUnreadable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseParser
from kimi_proxy.features import completions as chat
from kimi_proxy.features.completions import ChatAnswer, ChatDelta

VERSION = "0.12.6"  # of Ollama, whose API this is: editors ask for it, and refuse an old one

_SAMPLING = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "num_predict": "max_tokens",
    "stop": "stop",
}
_PENALTIES = ("presence_penalty", "frequency_penalty")
ARCHITECTURE = "remote"  # before the names of figures, where Ollama has the architecture of a model


class OllamaDetails(TypedDict):
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaListedModel(TypedDict):
    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaModels(TypedDict):
    models: list[OllamaListedModel]


class OllamaModel(TypedDict):
    modelfile: str
    parameters: str
    template: str
    license: str
    details: OllamaDetails
    model_info: dict[str, str | int]
    capabilities: list[str]


class OllamaVersion(TypedDict):
    version: str


def chat_request(body: JsonObject) -> JsonObject:
    """Return a request of Ollama's as one of chat completions; the same messages become the same bytes."""
    request: JsonObject = {"model": body.get("model") or ""}
    if tools := read.as_objects(body.get("tools")):
        request["tools"] = list(tools)
    request["messages"] = list(_messages(read.as_objects(body.get("messages"))))
    request["stream"] = body.get("stream") is not False
    return request | _options(read.as_object(body.get("options"))) | _format(body.get("format"))


def _options(options: JsonObject) -> JsonObject:
    known = {**_SAMPLING, **{name: name for name in _PENALTIES}}
    found: JsonObject = {known[name]: value for name, value in options.items() if name in known and value is not None}
    limit = found.get("max_tokens")
    if isinstance(limit, int) and limit < 0:  # as much as it likes
        del found["max_tokens"]
    return found


def _format(wanted: JsonValue) -> JsonObject:
    if wanted == "json":
        return {"response_format": {"type": "json_object"}}
    schema = read.as_object(wanted)
    return {"response_format": chat.json_schema("answer", schema, strict=False)} if schema else {}


def _messages(messages: list[JsonObject]) -> Iterator[JsonObject]:
    """Calls have no ids in most of Ollama's clients: they are numbered, and results answer them in their order."""
    open_calls: list[tuple[str, str]] = []  # ids and names
    made = 0
    for message in messages:
        role = read.as_text(message.get("role"))
        text = read.as_text(message.get("content"))
        calls = read.as_objects(message.get("tool_calls"))
        if role == "tool":
            yield {"role": "tool", "tool_call_id": _take_call(message, open_calls), "content": text}
        elif calls:
            chat_calls: list[JsonValue] = []
            for call in calls:
                function = read.as_object(call.get("function"))
                made = made + 1
                id = read.as_text(call.get("id")) or f"call_{made}"
                name = read.as_text(function.get("name"))
                open_calls.append((id, name))
                chat_calls.append(
                    {"id": id, "type": "function", "function": chat.function(name, function.get("arguments"))}
                )
            yield {"role": role, "content": text or None, "tool_calls": chat_calls}
        else:
            yield {"role": role, "content": _content(text, message.get("images"))}


def _take_call(message: JsonObject, open_calls: list[tuple[str, str]]) -> str:
    """Return the id of the call that a result answers: the one it names, else the first of its tool, or of all."""
    id = read.as_text(message.get("tool_call_id"))
    name = read.as_text(message.get("tool_name") or message.get("name"))
    fitting = [each for each in open_calls if each[0] == id] or [each for each in open_calls if each[1] == name]
    found = next(iter(fitting or open_calls), None)
    if found is None:
        return id or name or "call_0"
    open_calls.remove(found)
    return found[0]


def _content(text: str, images: JsonValue) -> JsonValue:
    coded = [each for each in images if isinstance(each, str)] if isinstance(images, list | tuple) else []
    if not coded:
        return text
    return [chat.text_part(text), *(chat.image_part(f"data:{_image_type(each)};base64,{each}") for each in coded)]


def _image_type(coded: str) -> str:
    beginnings = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}
    return beginnings.get(coded[:4], "image/png")


def chat_answer(body: bytes) -> JsonObject:
    """Return an answer that came in one piece. Raise UpstreamUnreadable if it is none."""
    try:
        value = read.as_object(json.decode(body))
    except ParseError as e:
        raise UpstreamUnreadable("the provider's response is not JSON") from e
    answer = ChatAnswer()
    deltas = answer.take_body(value)
    message: JsonObject = {"role": "assistant", "content": _join_deltas(deltas, "text")}
    message |= {"thinking": thought} if (thought := _join_deltas(deltas, "thinking")) else {}
    message |= _calls(answer, deltas)
    return {**_head(answer), "message": message, **_ending(answer)}


class ChatLines:
    """A stream of chat completions as Ollama's lines: feed it slices, get whole lines."""

    def __init__(self) -> None:
        self._events = SseParser()
        self._answer = ChatAnswer()
        self._deltas: list[ChatDelta] = []  # of calls, which are shown whole
        self._is_over = False

    def feed(self, piece: bytes) -> bytes:
        return b"".join(self._lines(piece))

    def end(self) -> bytes:
        """Return the last line, if the provider said that it was done without the usual mark."""
        return b"" if self._is_over or not self._answer.finish else b"".join(self._finish())

    def _lines(self, piece: bytes) -> Iterator[bytes]:
        for event in self._events.feed(piece):
            if self._is_over or not event.data:
                continue
            if event.data == DONE:
                yield from self._finish()
                continue
            chunk = read.as_object(read.value_of(event.data))
            if error := read.as_object(chunk.get("error")):
                self._is_over = True
                yield _line({"error": read.as_text(error.get("message")) or "the provider failed"})
                continue
            yield from self._show(list(self._answer.take(chunk)))

    def _show(self, deltas: list[ChatDelta]) -> Iterator[bytes]:
        self._deltas += [delta for delta in deltas if delta.call is not None]
        for delta in deltas:
            if delta.call is None:
                name = "thinking" if delta.kind == "thinking" else "content"
                message: JsonObject = {"role": "assistant", "content": "", name: delta.text}
                yield _line({**_head(self._answer), "message": message, "done": False})

    def _finish(self) -> Iterator[bytes]:
        self._is_over = True
        if calls := _calls(self._answer, self._deltas):
            message: JsonObject = {"role": "assistant", "content": "", **calls}
            yield _line({**_head(self._answer), "message": message, "done": False})
        last: JsonObject = {"role": "assistant", "content": ""}
        yield _line({**_head(self._answer), "message": last, **_ending(self._answer)})


def error_answer(body: bytes) -> JsonObject:
    """Return a provider's refusal as Ollama says it."""
    return {"error": chat.error_of(body)[1]}


def model_list(names: list[str]) -> OllamaModels:
    return {"models": [_listed_model(name) for name in names]}


def model_details(name: str, window: int | None) -> OllamaModel:
    info: dict[str, str | int] = {"general.architecture": ARCHITECTURE, "general.basename": name}
    if window is not None:
        info[f"{ARCHITECTURE}.context_length"] = window
    return {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "license": "",
        "details": _details(),
        "model_info": info,
        "capabilities": ["completion", "tools"],
    }


def _listed_model(name: str) -> OllamaListedModel:
    modified = _time(0)
    return {"name": name, "model": name, "modified_at": modified, "size": 0, "digest": "", "details": _details()}


def _details() -> OllamaDetails:
    return {"format": "", "family": "", "families": [], "parameter_size": "", "quantization_level": ""}


def _head(answer: ChatAnswer) -> JsonObject:
    return {"model": answer.model, "created_at": _time(answer.created)}


def _ending(answer: ChatAnswer) -> JsonObject:
    usage = answer.usage
    counted: JsonObject = {"prompt_eval_count": usage.input_tokens, "eval_count": usage.output_tokens}
    return {
        "done": True,
        "done_reason": "length" if answer.finish == "length" else "stop",
        **(counted if usage.input_tokens else {}),
    }


def _calls(answer: ChatAnswer, deltas: list[ChatDelta]) -> JsonObject:
    """Return the calls of an answer. Raise UpstreamUnreadable if the arguments of one are no JSON object."""
    calls = dict.fromkeys(delta.call for delta in deltas if delta.call is not None)
    chat_calls: list[JsonValue] = [
        {"id": answer.call_id(call), "function": {"name": call.name, "arguments": chat.arguments_of(call)}}
        for call in calls
    ]
    return {"tool_calls": chat_calls} if chat_calls else {}


def _join_deltas(deltas: list[ChatDelta], kind: str) -> str:
    return "".join(delta.text for delta in deltas if delta.kind == kind)


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _line(value: JsonObject) -> bytes:
    return json.encode(value) + b"\n"
