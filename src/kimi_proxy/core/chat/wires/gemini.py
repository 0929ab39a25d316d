"""Google's generateContent: `contents` of parts, a separate system prompt, the model and the stream flag in the path.

Inside the proxy a body has `model` and `stream` like all others: `open_body` adds them, `address` removes them.
"""

import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from urllib.parse import quote

from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.members import ENVELOPED, without_members
from kimi_proxy.core.chat.messages import RememberedMessages
from kimi_proxy.core.chat.read import Content, Edit, Fragment, JsonBody, Kind, Message, Part, RawObject, Role
from kimi_proxy.core.chat.wires.calls import CallPlace, CallStream, object_or_empty
from kimi_proxy.core.chat.wires.protocol import (
    ITEM,
    METHOD,
    Place,
    RecallBody,
    RecallRounds,
    RecallStream,
    ReplyFacts,
    RoundCalls,
    UpstreamAddress,
    Usage,
    WireFormat,
    count,
    event_bytes,
    gap,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent

ROOT = "/v1beta"
OPENAI = "/openai"  # where the same provider offers chat completions

_ROLES: dict[str, Role] = {"": "user", "user": "user", "model": "assistant", "function": "user", "system": "system"}
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
# An id of ours, for a call to which the model gave none.
_OUR_ID = re.compile(r".+:[0-9a-f]{8}", re.DOTALL)
_PART: Place = ("contents", ITEM, "parts", ITEM)
# What holds the words of a call or of its answer, in the two spellings that Google reads.
_ARGUMENTS = {
    "functionCall": "args",
    "function_call": "args",
    "functionResponse": "response",
    "function_response": "response",
}
_MAX_DEPTH = 4  # in the answer of a tool, where texts are looked for


def call_id_of(call: JsonObject) -> str:
    """Return the id of a call, or one derived from the call: most models send none."""
    name = read.as_text(call.get("name"))
    arguments = json.encode(_sort_members(call.get("args") or {}))
    return read.as_text(call.get("id")) or f"{name}:{zlib.crc32(arguments):08x}"


def _sort_members(value: JsonValue) -> JsonValue:
    """Clients send a call back with its members in another order."""
    if isinstance(value, Mapping):
        return {name: _sort_members(value[name]) for name in sorted(value)}
    return [_sort_members(each) for each in value] if isinstance(value, list | tuple) else value


class _GeminiRounds(RecallRounds):
    _parts: list[JsonObject]  # of this round

    def _calls(self) -> Iterator[tuple[str, str, str]]:
        for part in self._parts:
            if call := _call_in(part):
                arguments = json.encode(call.get("args") or {}).decode()
                yield call_id_of(call), read.as_text(call.get("name")), arguments

    def _said_items(self) -> list[JsonObject]:
        return [{"role": "model", "parts": _join_texts(self._parts)}]

    def _is_own(self, part: JsonObject) -> bool:
        return _call_in(part).get("name") in self._own

    def _with_ids(self, parts: list[JsonObject], answer: JsonObject) -> list[JsonObject]:
        """Return parts in which each call of the client's has an id: it would invent one that we could not know."""
        made_by = read.as_text(answer.get("responseId"))
        return [part if self._is_own(part) else _with_call_id(part, f"{made_by}:{at}") for at, part in enumerate(parts)]


_NOTHING = Raw(b"null")
_PLAIN_TOOLS = ("functionDeclarations", "function_declarations", "codeExecution", "code_execution", "urlContext")


class GeminiRecallBody(_GeminiRounds, RecallBody):
    _shown_before: tuple[JsonObject, ...] = ()

    def take(self, body: JsonObject) -> RoundCalls:
        self._candidate, parts = _first_candidate(body)
        self._parts = self._with_ids(parts, body)
        calls = super().take(body)
        self._usage = body.get("usageMetadata")
        return calls

    def join_rounds(self) -> JsonObject:
        content = read.as_object(self._candidate.get("content"))
        shown: JsonObject = {**content, "parts": [*self._shown_before, *self._others()]}
        return {**self._body, "candidates": [{**self._candidate, "content": shown}]}

    def _begin(self) -> None:
        self._shown_before += tuple(self._others())

    def _others(self) -> list[JsonObject]:
        return _with_gap(_text_of(self._shown_before), [part for part in self._parts if not self._is_own(part)])


class GeminiRecallStream(_GeminiRounds, RecallStream):
    _said_before = ""  # the last text of the rounds that are over

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        self._parts = []
        super().__init__(own, sums_usage)

    def _begin(self) -> None:
        self._said_before = _text_of(self._parts) or self._said_before
        self._parts = []
        self._has_own, self._has_text = False, False
        self._usage, self._is_over = None, False
        self._held = []

    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes:
        if value.get("error"):
            return raw
        candidate, received = _first_candidate(value)
        parts = self._with_ids(received, value)
        shown = [part for part in parts if not self._is_own(part)]
        self._has_own = self._has_own or len(shown) < len(parts)
        if self._is_later and not self._has_text:
            shown = _with_gap(self._said_before, shown)
        self._has_text = self._has_text or bool(_text_of(parts))
        self._parts += parts
        self._usage = value.get("usageMetadata") or self._usage
        self._is_over = self._is_over or bool(candidate.get("finishReason"))
        if self._has_own and self._is_over:
            self._held.append((event, _with_parts(value, candidate, [])))
            unfinished = {name: each for name, each in candidate.items() if name != "finishReason"}
            return event_bytes(event, _with_parts(value, unfinished, shown)) if shown else b""
        if shown == received:
            return raw
        return event_bytes(event, _with_parts(value, candidate, shown)) if shown else b""


class GeminiCallStream(CallStream):
    _is_open = False  # a call comes in one piece

    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> Sequence[bytes]:
        rewritten = self.rewrite_body(value)
        return (raw,) if rewritten is value else (event_bytes(event, rewritten),)

    def rewrite_body(self, body: JsonObject) -> JsonObject:
        candidate, parts = _first_candidate(body)
        rewritten = self._rewrite_each(parts)
        return body if rewritten is None else _with_parts(body, candidate, rewritten)

    def _rewrite(self, item: JsonObject) -> JsonObject:
        call = _call_in(item)
        found = (
            self._unwrap(json.encode(call.get("args") or {}).decode()) if call.get("name") == self._wrapper else None
        )
        if found is None:
            return item
        return {**item, "functionCall": {**call, "name": found.name, "args": object_or_empty(found.arguments)}}


OPERATIONS = f"{ENVELOPED}/operations"  # of a user who is being enrolled


class GeminiContents(WireFormat):
    name = "gemini"
    paths = tuple(
        f"{root}:{verb}"
        for root in (f"{ROOT}/models/{{model}}", "/v1/models/{model}", ENVELOPED)
        for verb in ("generateContent", "streamGenerateContent")
    )
    count_paths = (
        *(f"{root}/models/{{model}}:countTokens" for root in (ROOT, "/v1")),
        f"{ENVELOPED}:countTokens",
    )
    relayed = (f"{ROOT}/models", f"{ENVELOPED}:{METHOD}", f"{OPERATIONS}/{{rest:path}}")
    beginnings = (ENVELOPED, f"{ROOT}/", f"/upload{ROOT}/")
    # Other methods of Code Assist enrol, change or delete the user that the login belongs to.
    stateless = (f"{ROOT}/models", f"{ENVELOPED}:loadCodeAssist")
    provider_types = ("gemini", "code-assist")
    client_header = "x-goog-api-client"
    conversation = "contents"
    has_system_messages = False
    system_member = "systemInstruction"
    recall_stream = GeminiRecallStream
    recall_body = GeminiRecallBody
    call_stream = GeminiCallStream
    function_types = ("",)
    schema_member = "parametersJsonSchema"
    tool_choice = "toolConfig"
    _news = re.compile(rb'"(?:finishReason|usageMetadata)"')

    def surcharge(self, body: JsonBody) -> str:
        """Searches of Google, and images, cost more than the answer counts."""
        if found := super().surcharge(body):
            return found
        config = read.members(body.members.get("generationConfig") or body.members.get("generation_config"))
        wanted = read.value(config.get("responseModalities") or config.get("response_modalities") or _NOTHING)
        modalities = wanted if isinstance(wanted, list) else [wanted]
        is_text = all(str(each).upper() == "TEXT" for each in modalities if each is not None)
        return "" if is_text else "generationConfig.responseModalities"

    def _costly_tool(self, body: JsonBody) -> str:
        groups = (read.members(raw) for raw in read.array(body.members.get("tools")))
        return next((f"tools.{name}" for group in groups for name in group if name not in _PLAIN_TOOLS), "")

    # Addresses

    def base_url(self, base_url: str) -> str:
        return base_url.removesuffix(OPENAI)

    def upstream_path(self, base_url: str, path: str = "") -> str:
        return (path or self.paths[0]).removeprefix(ROOT).removeprefix("/v1")

    def address(self, body: bytes, path: str) -> UpstreamAddress | None:
        if path not in ("", *self.count_paths):
            return None
        members = JsonBody(body).members
        model = read.string(members.get("model"))
        is_stream = read.is_true(members.get("stream"))
        verb = "countTokens" if path else "streamGenerateContent" if is_stream else "generateContent"
        query = "alt=sse" if is_stream and not path else ""
        return UpstreamAddress(
            f"/models/{quote(model, safe='')}:{verb}", query, without_members(body, "model", "stream")
        )

    def key_header(self, key: bytes) -> tuple[bytes, bytes]:
        return b"x-goog-api-key", key

    def model_entry(self, key: str, provider: str) -> JsonObject:
        return {"name": f"models/{key}", "displayName": key, "supportedGenerationMethods": ["generateContent"]}

    def model_list(self, models: Sequence[tuple[str, str]]) -> JsonObject:
        return {"models": [self.model_entry(*model) for model in models]}

    # Requests

    def is_whole(self, place: Place, holder: Mapping[str, JsonValue]) -> bool:
        return place[:-1] == _PART and place[-1] in _ARGUMENTS

    def is_opaque(self, place: Place, holder: Mapping[str, JsonValue], name: str) -> bool:
        return place[:-1] == _PART and _ARGUMENTS.get(place[-1]) == name

    def messages(self, body: JsonBody, remembered: RememberedMessages | None = None) -> tuple[Message, ...]:
        """Return the messages; none is remembered, because which call a result answers depends on those before it."""
        open_calls: list[tuple[str, str]] = []  # ids and names of those without a result so far
        found: list[Message] = []
        for raw, start, end in body.items(body.members.get(self.conversation)):
            said = _content(Fragment(body.body[start:end], raw), raw, open_calls)
            found.append(Message(said.role, said.parts, start, end, said))
        return tuple(found)

    def _content(self, fragment: Fragment, raw: Raw) -> Content:
        return _content(fragment, raw, [])

    def apart(self, body: JsonBody) -> tuple[Part, ...]:
        parts = read.array(read.members(_either(body.members, "systemInstruction", "system_instruction")).get("parts"))
        texts = (read.members(raw).get("text") for raw in parts)
        return tuple(body.part("text", text) for text in texts if text is not None)

    def tool_lists(self, body: JsonBody) -> Iterator[Raw]:
        for raw in read.array(body.members.get("tools")):
            listed = _either(read.members(raw), "functionDeclarations", "function_declarations")
            if listed is not None and read.is_array(listed):
                yield listed

    def forces_tool(self, body: JsonBody) -> bool:
        choice = read.members(_either(body.members, "toolConfig", "tool_config"))
        calling = read.members(_either(choice, "functionCallingConfig", "function_calling_config"))
        return read.string(calling.get("mode")).upper() == "ANY"

    def new_message(self, role: Role, text: str) -> JsonObject:
        return {"role": "model" if role == "assistant" else "user", "parts": [{"text": text}]}

    def new_tool(self, name: str, description: str, schema: JsonObject) -> JsonObject:
        return {"name": name, "description": description, "parametersJsonSchema": schema}

    def add_tool(self, body: JsonBody, tool: JsonObject) -> Edit:
        declared = list(self.tool_lists(body))
        if declared:
            return body.append_to(declared[-1], [tool])
        return body.append("tools", [{"functionDeclarations": [tool]}])

    def replace_tools(self, body: JsonBody, removed: Collection[str], added: Sequence[JsonObject]) -> list[Edit]:
        """Leave out lists that would be empty; ours come in a list of their own."""
        listed = body.members["tools"]
        entries = list[bytes]()
        for raw in read.array(listed):
            start, end = body.span(raw)
            declared = _either(read.members(raw), "functionDeclarations", "function_declarations")
            kept = None if declared is None else self._tools_without(body, declared, removed, ())
            if declared is None or kept is None:
                entries.append(body.body[start:end])
            elif kept != b"[]":
                first, last = body.span(declared)
                entries.append(body.body[start:first] + kept + body.body[last:end])
        entries.append(json.encode({"functionDeclarations": list(added)}))
        return [(*body.span(listed), b"[" + b",".join(entries) + b"]")]

    def calls(self, body: JsonBody) -> Iterator[CallPlace]:
        for raw in read.array(body.members.get(self.conversation)):
            for part in map(read.members, read.array(read.members(raw).get("parts"))):
                call = read.members(_either(part, "functionCall", "function_call"))
                result = read.members(_either(part, "functionResponse", "function_response"))
                if (name := call.get("name") or result.get("name")) is not None:
                    yield CallPlace(name, call.get("args"))

    def new_tool_results(self, results: Iterable[tuple[str, JsonValue]], names: Iterable[str] = ()) -> list[JsonObject]:
        parts: list[JsonValue] = []
        for (call_id, text), name in zip(results, chain(names, repeat("")), strict=False):
            own: JsonObject = {} if _OUR_ID.fullmatch(call_id) else {"id": call_id}
            parts.append({"functionResponse": {**own, "name": name, "response": {"output": text}}})
        return [{"role": "user", "parts": parts}]

    def add_system(self, body: JsonBody, messages: tuple[Message, ...], text: str) -> list[Edit]:
        before = _either(body.members, "systemInstruction", "system_instruction")
        if before is None or bytes(before) == b"null":
            return [body.set(self.system_member, {"parts": [{"text": text}]})]
        parts = read.members(before).get("parts")
        if parts is None or not read.is_array(parts):
            return []
        last = next((found for raw in reversed(read.array(parts)) if (found := read.members(raw).get("text"))), None)
        return self._add_to_message(body, parts, text) if last is None else body.add_text(last, text)

    def _content_of(self, body: JsonBody, at: int) -> Raw | None:
        parts = read.members(read.array(body.members.get(self.conversation))[at]).get("parts")
        return parts if parts is not None and read.is_array(parts) else None

    def _add_to_message(self, body: JsonBody, content: Raw, text: str) -> list[Edit]:
        return [body.append_to(content, [{"text": text}])]

    def summary_request(self, model: str, instructions: str, prompt: str, max_tokens: int) -> JsonObject:
        return {
            "model": model,
            "systemInstruction": {"parts": [{"text": instructions}]},
            "contents": [self.new_message("user", prompt)],
            "generationConfig": {"maxOutputTokens": max_tokens},
        }

    def output_limit(self, body: JsonBody) -> int:
        limit = read.value(read.members(body.members.get("generationConfig")).get("maxOutputTokens"))
        return limit if type(limit) is int and limit > 0 else 0

    def answer_text(self, answer: JsonObject) -> str:
        return _text_of(_first_candidate(answer)[1])

    def token_count(self, tokens: int) -> JsonObject:
        return {"totalTokens": tokens}

    # Replies

    def usage(self, value: JsonValue) -> Usage | None:
        if not isinstance(value, Mapping):
            return None
        thoughts = count(value, "thoughtsTokenCount")
        return Usage(
            input_tokens=count(value, "promptTokenCount") + count(value, "toolUsePromptTokenCount"),
            output_tokens=count(value, "candidatesTokenCount") + thoughts,
            cached_tokens=count(value, "cachedContentTokenCount"),
            reasoning_tokens=thoughts,
        )

    def _read_body_facts(self, facts: ReplyFacts, members: RawObject) -> ReplyFacts:
        candidate = next((read.members(raw) for raw in read.array(members.get("candidates"))[:1]), {})
        finish = read.string(candidate.get("finishReason"))
        # Every event counts everything so far, so the last one is right, even after another round.
        counted = self.usage(read.value(members.get("usageMetadata")))
        known = facts.update(members.get("modelVersion"), finish, None)
        known = known if counted is None else replace(known, usage=counted)
        return replace(known, is_complete=True) if finish and not known.is_complete else known

    _event = _read_body_facts

    # Errors

    def error_body(self, status: int, code: str, message: str) -> JsonObject:
        name = _STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
        details: JsonValue = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code}]
        return {"error": {"code": status, "message": message, "status": name, "details": details}}


def _content(body: Fragment, raw: Raw, open_calls: list[tuple[str, str]]) -> Content:
    fields = read.members(raw)
    role = _ROLES.get(read.string(fields.get("role")), "other")
    parts = (found for part in read.array(fields.get("parts")) for found in _parts(body, part, open_calls))
    return Content(role, tuple(parts))


def _parts(body: Fragment, raw: Raw, open_calls: list[tuple[str, str]]) -> Iterator[Part]:
    fields = read.members(raw)
    if (call := _either(fields, "functionCall", "function_call")) is not None:
        made = read.as_object(read.value(call))
        id = call_id_of(made)
        name = read.as_text(made.get("name"))
        open_calls.append((id, name))
        yield body.part("tool_call", read.members(call).get("args") or call, id, name)
    elif (result := _either(fields, "functionResponse", "function_response")) is not None:
        yield from _result_parts(body, result, open_calls)
    elif (text := fields.get("text")) is not None:
        kind: Kind = "thinking" if read.is_true(fields.get("thought")) else "text"
        yield body.part(kind, text)
    else:
        is_image = _either(fields, "inlineData", "inline_data") is not None or "fileData" in fields
        yield body.part("image" if is_image else "other", raw)


def _result_parts(body: Fragment, raw: Raw, open_calls: list[tuple[str, str]]) -> Iterator[Part]:
    result = read.members(raw)
    call_id = _take_call(read.string(result.get("id")), read.string(result.get("name")), open_calls)
    answer = result.get("response")
    failed = "error" in read.members(answer)
    texts = list(_texts(answer)) if answer is not None else []
    if not texts:
        yield body.part("other", raw, call_id)
    for text in texts:
        yield body.part("tool_result", text, call_id, failed=failed)
    for more in read.array(result.get("parts")):
        yield body.part("image", more, call_id)


def _take_call(id: str, name: str, open_calls: list[tuple[str, str]]) -> str:
    """Return the id of the call that a result answers: of the same id, else the first of the same name."""
    fitting = [call for call in open_calls if call[0] == id] or [call for call in open_calls if call[1] == name]
    if not fitting:
        return id or name
    open_calls.remove(fitting[0])
    return fitting[0][0]


def _texts(value: Raw, depth: int = 0) -> Iterator[Raw]:
    """Return the strings in the answer of a tool, which is an object of any shape."""
    if read.is_string(value):
        yield value
    elif depth < _MAX_DEPTH:
        inner = read.array(value) if read.is_array(value) else list(read.members(value).values())
        for each in inner:
            yield from _texts(each, depth + 1)


def _either(members: RawObject, name: str, other: str) -> Raw | None:
    """Google takes members in both spellings."""
    found = members.get(name)
    return members.get(other) if found is None else found


def _text_of(parts: Iterable[JsonObject]) -> str:
    """Return the text without the thinking."""
    return "".join(read.as_text(part.get("text")) for part in parts if not part.get("thought"))


def _call_in(part: JsonObject) -> JsonObject:
    return read.as_object(part.get("functionCall"))


def _with_call_id(part: JsonObject, salt: str) -> JsonObject:
    call = _call_in(part)
    if not call or call.get("id"):
        return part
    return {**part, "functionCall": {**call, "id": f"{call_id_of(call)}{zlib.crc32(salt.encode()):08x}"}}


def _first_candidate(answer: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    candidate = next(iter(read.as_objects(answer.get("candidates"))), {})
    return candidate, read.as_objects(read.as_object(candidate.get("content")).get("parts"))


def _with_parts(answer: JsonObject, candidate: JsonObject, parts: list[JsonObject]) -> JsonObject:
    content = read.as_object(candidate.get("content"))
    return {**answer, "candidates": [{**candidate, "content": {"role": "model", **content, "parts": parts}}]}


def _with_gap(before: str, parts: list[JsonObject]) -> list[JsonObject]:
    """Return the parts of a round, the first text apart from that of the round before."""
    for at, part in enumerate(parts):
        text = read.as_text(part.get("text"))
        if text and not part.get("thought"):
            return [*parts[:at], {**part, "text": gap(before, text) + text}, *parts[at + 1 :]]
    return parts


def _join_texts(parts: Sequence[JsonObject]) -> list[JsonValue]:
    """Return the parts with consecutive plain texts joined."""
    joined: list[JsonObject] = []
    for part in parts:
        if joined and joined[-1].keys() == part.keys() == {"text"}:
            joined[-1] = {"text": f"{joined[-1]['text']}{part['text']}"}
        else:
            joined.append(part)
    return list(joined)
