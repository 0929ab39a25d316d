"""OpenAI's responses: `instructions` apart, `input` as one text or as items, calls and their outputs among them."""

import re
from abc import abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.messages import RememberedMessages
from kimi_proxy.core.chat.read import Content, Edit, Fragment, JsonBody, Kind, Message, Part, RawObject, Role, role_of
from kimi_proxy.core.chat.wires.calls import CallPlace, CallStream, Unwrap
from kimi_proxy.core.chat.wires.protocol import (
    ITEM,
    Place,
    RecallBody,
    RecallRounds,
    RecallStream,
    ReplyFacts,
    RoundCalls,
    Usage,
    WireFormat,
    count,
    event_bytes,
    valid_arguments,
)
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent

_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("input_text", "output_text", "text", "refusal"), "text"),
    "input_image": "image",
}
# Items that have all of their contents in them, so that the provider looks up none of them by its id.
_WHOLE_ITEMS = frozenset(
    """
    agent_message function_call function_call_output custom_tool_call custom_tool_call_output local_shell_call
    local_shell_call_output shell_call shell_call_output apply_patch_call apply_patch_call_output tool_search_call
    tool_search_output web_search_call additional_tools computer_call computer_call_output mcp_call mcp_list_tools
    mcp_approval_request
    """.split()
)
_SEALED_ITEMS = frozenset({"reasoning", "compaction", "compaction_summary", "context_compaction"})
_BEGINS = frozenset({"response.created", "response.in_progress", "response.queued"})
_COMPACTION = b'"compaction"'
_SEARCH = b'"web_search_call"'
_TOOLS_ITEM = b'"additional_tools"'
SEARCH_TOOL, _SEARCH_CALL = "tool_search", "tool_search_call"  # which the client runs
DEFAULT_NAMESPACE = "functions"  # the model calls its tools with this namespace, or with none
_SEARCHED: JsonObject = {"execution": "client", "status": "completed"}
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _ResponsesRounds(RecallRounds):
    _shown_before: tuple[JsonObject, ...] = ()  # items of the rounds that are over

    @property
    @abstractmethod
    def _output(self) -> Sequence[JsonObject]:
        """The items of this round."""

    def _calls(self) -> Iterator[tuple[str, str, str]]:
        """Yield the id, name and arguments of each call; the provider's own steps, such as a search, have no id."""
        for item in self._output:
            id = read.as_text(item.get("call_id"))
            is_own = self._is_own(item)
            if is_own or (id and read.as_text(item.get("type")).endswith("_call")):
                name = read.as_text(item.get("name")) or (SEARCH_TOOL if item.get("type") == _SEARCH_CALL else "")
                yield id, name if is_own else "", _arguments(item)

    def _said_items(self) -> list[JsonObject]:
        return [
            {**item, "arguments": valid_arguments(read.as_text(item.get("arguments")))}
            if item.get("type") == "function_call"
            else item
            for item in self._output
        ]

    def _is_own(self, item: JsonObject) -> bool:
        is_search = item.get("type") == _SEARCH_CALL and item.get("execution") == "client"
        return (is_search and SEARCH_TOOL in self._own) or any(_is_call_of(item, name) for name in self._own)

    def _shown_items(self) -> tuple[JsonObject, ...]:
        """The items that the client sees: those of all rounds, without our calls."""
        return (*self._shown_before, *(item for item in self._output if not self._is_own(item)))


class ResponsesRecallBody(_ResponsesRounds, RecallBody):
    def take(self, body: JsonObject) -> RoundCalls:
        self.id = self.real_id = read.as_text(body.get("id"))
        return super().take(body)

    def join_rounds(self) -> JsonObject:
        return {**self._body, "output": self._shown_items()}

    def _begin(self) -> None:
        self._shown_before = self._shown_items()

    @property
    def _output(self) -> Sequence[JsonObject]:
        return read.as_objects(self._body.get("output"))


class ResponsesRecallStream(_ResponsesRounds, RecallStream):
    _is_moved = False  # something was hidden: what follows has another place for the client
    _number = -1  # of the last event that it has seen

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        self._items: dict[int, JsonObject] = {}
        super().__init__(own, sums_usage)

    def _begin(self) -> None:
        self._shown_before = self._shown_items()
        self._items = {}
        self._usage, self._is_over = None, False
        self._held = []

    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes:
        self.real_id = read.as_text(read.as_object(value.get("response")).get("id")) or self.real_id
        self.id = self.id or self.real_id
        kind = read.as_text(value.get("type"))
        index = read.as_index(value.get("output_index"))
        if index is not None and (item := read.as_object(value.get("item"))):
            self._items[index] = item
        if kind in _ENDS:
            return self._end(event, value, raw)
        if (self._is_later and kind in _BEGINS) or (index is not None and self._is_own(self._items.get(index, {}))):
            self._is_moved = True
            return b""
        return self._move_event(event, value, index, raw)

    def _finish_event(self, value: JsonObject) -> JsonObject:
        return self._renumber(value)

    @property
    def _output(self) -> Sequence[JsonObject]:
        return tuple(self._items.values())

    def _move_event(self, event: SseEvent, value: JsonObject, index: int | None, raw: bytes) -> bytes:
        """Return the event in its place among those that the client sees."""
        if not self._is_moved:
            number = read.as_index(value.get("sequence_number"))
            self._number = self._number if number is None else number
            return raw
        value = self._renumber(value)
        if index is not None:
            before = sum(1 for at, item in self._items.items() if at < index and not self._is_own(item))
            value["output_index"] = len(self._shown_before) + before
        return event_bytes(event, value)

    def _renumber(self, value: JsonObject) -> JsonObject:
        if "sequence_number" not in value:
            return dict(value)
        self._number += 1
        return {**value, "sequence_number": self._number}

    def _end(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes:
        response = read.as_object(value.get("response"))
        for index, item in enumerate(read.as_objects(response.get("output"))):
            self._items.setdefault(index, item)
        self._usage = response.get("usage")
        self._is_over = True
        if not self._is_moved and not self.calls.own:
            return raw
        whole = {**response, "id": self.id, "output": self._shown_items()}
        self._held.append((event, {**value, "response": whole}))
        return b""


class ResponsesCallStream(CallStream):
    def __init__(self, wrapper: str, unwrap: Unwrap) -> None:
        super().__init__(wrapper, unwrap)
        self._held: list[tuple[SseEvent, JsonObject, bytes]] = []  # of the item that is open

    @property
    def _is_open(self) -> bool:
        return bool(self._held)

    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> Sequence[bytes]:
        if value.get("type") in _ENDS:
            response = read.as_object(value.get("response"))
            rewritten = self.rewrite_body(response)
            return (raw,) if rewritten is response else (event_bytes(event, {**value, "response": rewritten}),)
        is_ours = _is_call_of(read.as_object(value.get("item")), self._wrapper)
        is_inside = bool(self._held) and value.get("output_index") == self._held[0][1].get("output_index")
        if not is_inside and not (is_ours and value.get("type") == "response.output_item.added"):
            return (raw,)
        self._held.append((event, value, raw))
        return self._close() if value.get("type") == "response.output_item.done" else ()

    def _close(self) -> Sequence[bytes]:
        held, self._held = self._held, []
        done = read.as_object(held[-1][1].get("item"))
        item = self._rewrite(done)
        if item is done:
            return [raw for _, _, raw in held]
        arguments = item["arguments"]
        shown = list[bytes]()
        for event, value, _ in held:
            if "delta" in value:  # the first has them all: no number of the events is left out
                value = {**value, "delta": arguments}
                arguments = ""
            elif "item" in value:
                is_done = value.get("type") == "response.output_item.done"
                value = {**value, "item": item if is_done else {**item, "arguments": "", "status": "in_progress"}}
            else:
                value = {**value, "arguments": item["arguments"], **({"name": item["name"]} if "name" in value else {})}
            shown.append(event_bytes(event, value))
        return shown

    def rewrite_body(self, body: JsonObject) -> JsonObject:
        output = self._rewrite_each(read.as_objects(body.get("output")))
        return body if output is None else {**body, "output": output}

    def _rewrite(self, item: JsonObject) -> JsonObject:
        is_ours = _is_call_of(item, self._wrapper)
        found = self._unwrap(read.as_text(item.get("arguments"))) if is_ours else None
        return item if found is None else {**item, "name": found.name, "arguments": found.arguments}


def _arguments(item: JsonObject) -> str:
    given = item.get("arguments")
    return json.encode(given).decode() if isinstance(given, Mapping) else read.as_text(given)


def _is_call_of(item: JsonObject, name: str) -> bool:
    """Return whether an item calls the function of this name; Codex calls an MCP server's tools by two names."""
    is_named = item.get("type") == "function_call" and item.get("name") == name
    return is_named and read.as_text(item.get("namespace")) in ("", DEFAULT_NAMESPACE)


class OpenAiResponses(WireFormat):
    name = "responses"
    paths = ("/v1/responses",)
    relayed = ("/v1/responses/{rest:path}",)
    stateless = ("/v1/responses/compact", "/v1/responses/input_tokens")
    surcharges = (*WireFormat.surcharges, "prompt")  # a stored one may bring tools of its own
    priced_tools = re.compile(
        r"function|custom|namespace|tool_search|mcp|(?:local_)?shell|apply_patch|computer|web_search"
    )
    compaction = "/v1/responses/compact"
    provider_types = ("openai",)
    conversation = "input"
    system_member = "instructions"
    previous_response = "previous_response_id"
    stored_conversation = "conversation"
    recall_stream = ResponsesRecallStream
    recall_body = ResponsesRecallBody
    call_stream = ResponsesCallStream
    # developers.openai.com, guides/tools-tool-search: "Only gpt-5.4 and later models support tool_search."
    searching = "openai", re.compile(r"gpt-(?:5\.(?:[4-9]|\d{2})|[6-9])", re.ASCII)
    search_tool = SEARCH_TOOL
    _news = re.compile(rb'"response"\s*:\s*\{')

    def messages(self, body: JsonBody, remembered: RememberedMessages | None = None) -> tuple[Message, ...]:
        items = body.members.get("input")
        if items is None or not read.is_string(items):
            return super().messages(body, remembered)
        start, end = body.span(items)
        parts = (Fragment(body.body[start:end], items).part("text", items),)
        return (Message("user", parts, start, end, Content("user", parts)),)

    def is_whole(self, place: Place, holder: Mapping[str, JsonValue]) -> bool:
        kind = holder.get("type")
        if place != (self.conversation, ITEM):
            return place == ("prompt",)  # the owner of the account has published it
        if kind in _SEALED_ITEMS:
            return bool(holder.get("encrypted_content"))
        is_message = kind == "message" or (kind is None and "role" in holder)
        return kind in _WHOLE_ITEMS or (is_message and bool(holder.get("content")))

    def apart(self, body: JsonBody) -> tuple[Part, ...]:
        instructions = body.members.get("instructions")
        if instructions is None or not read.is_string(instructions):
            return ()
        return (body.part("text", instructions),)

    def tools(self, body: JsonBody) -> Iterator[tuple[str, Raw]]:
        """Tools in a namespace, such as those of an MCP server in Codex, have its name as a prefix."""
        for raw in (each for offered in self.tool_lists(body) for each in read.array(offered)):
            tool = read.members(raw)
            name = self._tool_name(tool)
            if read.string(tool.get("type")) != "namespace":
                yield name, raw
            prefix = "" if name == DEFAULT_NAMESPACE else f"{name}__"
            for inner in read.array(tool.get("tools")):
                yield prefix + self._tool_name(read.members(inner)), inner

    def add_tool(self, body: JsonBody, tool: JsonObject) -> Edit:
        """Add a tool where Codex has its own: for its newer models that is an item, with a namespace in it."""
        offered = next((raw for raw in self.tool_lists(body) if read.array(raw)), None)
        if offered is None or offered is body.members.get("tools"):
            return super().add_tool(body, tool)
        spaces = (read.members(raw) for raw in read.array(offered))
        inner = (space.get("tools") for space in spaces if self._tool_name(space) == DEFAULT_NAMESPACE)
        return body.append_to(next((raw for raw in inner if raw is not None and read.is_array(raw)), offered), [tool])

    def tool_lists(self, body: JsonBody) -> Iterator[Raw]:
        """Codex sends those for its newer models as an item of the conversation."""
        yield from super().tool_lists(body)
        for raw in read.array(body.members.get("input")) if _TOOLS_ITEM in body.body else ():
            item = read.members(raw)
            if read.string(item.get("type")) == "additional_tools" and (listed := item.get("tools")) is not None:
                yield listed

    def read_from(self, body: JsonBody) -> int:
        """Return the index of the newest compaction, which replaces everything before it.

        If Codex requested it, it repeats the messages that the model still reads before the compaction.
        """
        if not self.is_cleared(body) or _COMPACTION not in body.body:
            return 0
        items = map(read.members, read.array(body.members.get("input")))
        return max((at for at, item in enumerate(items) if read.string(item.get("type")) == "compaction"), default=0)

    def is_cleared(self, body: JsonBody) -> bool:
        asked = body.members.get("context_management")
        return asked is not None and _COMPACTION in bytes(asked)

    def is_answer_stored(self, body: JsonBody) -> bool:
        return bytes(body.members.get("store", b"")) != b"false"

    def new_message(self, role: Role, text: str) -> JsonObject:
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    def new_tool(self, name: str, description: str, schema: JsonObject) -> JsonObject:
        return {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}

    def calls(self, body: JsonBody) -> Iterator[CallPlace]:
        for item in map(read.members, read.array(body.members.get(self.conversation))):
            is_plain = read.string(item.get("namespace")) in ("", DEFAULT_NAMESPACE)
            if read.string(item.get("type")) == "function_call" and is_plain and (name := item.get("name")) is not None:
                yield CallPlace(name, item.get("arguments"))

    def new_tool_results(self, results: Iterable[tuple[str, JsonValue]], names: Iterable[str] = ()) -> list[JsonObject]:
        return [
            {"type": "function_call_output", "call_id": call_id, "output": found}
            if isinstance(found, str)
            else {**_SEARCHED, "type": "tool_search_output", "call_id": call_id, "tools": found}
            for call_id, found in results
        ]

    def new_search_tool(self, name: str, description: str, schema: JsonObject) -> JsonObject:
        return {"type": SEARCH_TOOL, "execution": "client", "description": description, "parameters": schema}

    def found_tools(self, tools: Sequence[tuple[str, JsonObject]]) -> JsonValue:
        return [{**tool, "defer_loading": True} for _, tool in tools]

    def new_search_call(self, call_id: str, name: str, arguments: JsonObject) -> JsonObject:
        return {**_SEARCHED, "type": _SEARCH_CALL, "call_id": call_id, "arguments": arguments}

    def add_items(self, body: JsonBody, items: Sequence[JsonObject]) -> Edit:
        """An `input` that is a text becomes the first message."""
        text = body.members.get("input")
        if text is None or not read.is_string(text):
            return super().add_items(body, items)
        return body.set("input", [self.new_message("user", body.part("text", text).text), *items])

    def add_reminder(self, body: JsonBody, messages: tuple[Message, ...], text: str) -> list[Edit]:
        return [self.add_items(body, [self.new_message("system", text)])]

    def summary_request(self, model: str, instructions: str, prompt: str, max_tokens: int) -> JsonObject:
        asked: JsonObject = {"model": model, "instructions": instructions, "input": [self.new_message("user", prompt)]}
        return asked | {"max_output_tokens": max_tokens, "store": False}

    def answer_text(self, answer: JsonObject) -> str:
        items = (item for item in read.as_objects(answer.get("output")) if item.get("type") == "message")
        blocks = (block for item in items for block in read.as_objects(item.get("content")))
        return "".join(read.as_text(block.get("text")) for block in blocks if block.get("type") == "output_text")

    def usage(self, value: JsonValue) -> Usage | None:
        if not isinstance(value, Mapping):
            return None
        return Usage(
            input_tokens=count(value, "input_tokens"),
            output_tokens=count(value, "output_tokens"),
            cached_tokens=count(value, "input_tokens_details", "cached_tokens"),
            cache_write_tokens=count(value, "input_tokens_details", "cache_write_tokens"),
            reasoning_tokens=count(value, "output_tokens_details", "reasoning_tokens"),
        )

    def error_event(self, status: int, code: str, message: str) -> bytes:
        # The documentation has the words at the top, OpenAI's own server puts them under `error`: clients read either.
        top: JsonObject = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0}
        return b"event: error\ndata: " + json.encode(top | self.error_body(status, code, message)) + b"\n\n"

    def _own_error_event(self, value: JsonObject) -> bytes:
        error = read.as_object(value.get("error"))
        message = error.get("message") or value.get("error")
        top: JsonObject = {"type": "error", "code": error.get("code") or error.get("type"), "message": message}
        return b"event: error\n" + super()._own_error_event({**top, "param": None, "sequence_number": 0, **value})

    def _content(self, fragment: Fragment, raw: Raw) -> Content:
        role, parts = _item(fragment, raw, read.members(raw))
        return Content(role, tuple(parts))

    def _event(self, facts: ReplyFacts, members: RawObject) -> ReplyFacts:
        if "response" not in members:
            return facts
        facts = self._read_body_facts(facts, read.members(members["response"]))
        return replace(facts, is_complete=True) if read.string(members.get("type")) in _ENDS else facts

    def _read_body_facts(self, facts: ReplyFacts, members: RawObject) -> ReplyFacts:
        status = read.string(members.get("status"))
        finish = "" if status in ("in_progress", "queued") else status
        usage = self.usage(read.value(members.get("usage")))
        if usage is not None and (raw := members.get("output")) is not None and _SEARCH in bytes(raw):
            usage = replace(usage, web_searches=sum(map(_is_web_search, read.array(raw))))
        facts = facts.update(members.get("model"), finish, usage)
        response_id = read.string(members.get("id"))
        return replace(facts, response_id=response_id) if response_id not in ("", facts.response_id) else facts


def _is_web_search(raw: Raw) -> bool:
    """Return whether an item is a search on the web; to open a page that was found costs nothing."""
    item = read.members(raw)
    action = read.members(item.get("action"))
    return read.string(item.get("type")) == "web_search_call" and read.string(action.get("type")) in ("", "search")


def _item(body: Fragment, raw: Raw, fields: RawObject) -> tuple[Role, Iterator[Part]]:
    kind = read.string(fields.get("type"))
    call_id = read.string(fields.get("call_id"))
    if kind in ("message", "") and "role" in fields:
        return role_of(fields.get("role")), body.parts(fields.get("content"), "text", _KINDS)
    if kind == "reasoning":
        return "assistant", iter((body.thinking(raw, fields.get("encrypted_content")),))
    if kind == "additional_tools":
        return "other", iter(())
    if kind.endswith("_call_output"):
        return "tool", _result(body, raw, fields, call_id)
    if kind.endswith("_call"):
        return "assistant", iter((_call(body, raw, fields, call_id),))
    return "other", iter((body.part("other", raw),))


def _call(body: Fragment, raw: Raw, fields: RawObject, call_id: str) -> Part:
    arguments = fields.get("arguments") or fields.get("input") or fields.get("action")
    name = read.string(fields.get("name")) or read.string(fields.get("type"))
    return body.part("tool_call", raw if arguments is None else arguments, call_id, name)


def _result(body: Fragment, raw: Raw, fields: RawObject, call_id: str) -> Iterator[Part]:
    output = fields.get("output")
    if output is None or (read.is_array(output) and not read.array(output)):  # no text, only the result of its call
        yield body.part("other", raw, call_id)
    elif read.is_array(output):
        printed = list(_shell_outputs(body, output, call_id))
        yield from printed or body.parts(output, "tool_result", _KINDS, call_id)
    else:
        yield body.part("tool_result", output, call_id)


def _shell_outputs(body: Fragment, output: Raw, call_id: str) -> Iterator[Part]:
    """Yield the outputs of the commands of a `shell_call_output`, each with both streams."""
    for block in map(read.members, read.array(output)):
        outcome = read.members(block.get("outcome"))
        failed = "outcome" in block and bytes(outcome.get("exit_code", b"")) != b"0"
        for stream in (block.get("stdout"), block.get("stderr")):
            if stream is not None and read.is_string(stream):
                yield body.part("tool_result", stream, call_id, failed=failed)
