"""The interface of a wire format: everything in which the APIs of clients and providers differ.

The defaults are OpenAI's, which most providers imitate. The shared part of a recall is here too: the model calls our
tool in the middle of a response, the provider is called again with the recovered text, and the client gets all rounds
as one response without those calls."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from msgspec import Raw

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.messages import RememberedMessages
from kimi_proxy.core.chat.read import PARAGRAPH, Content, Edit, Fragment, JsonBody, Message, Part, RawObject, Role
from kimi_proxy.core.chat.wires.calls import CallPlace, CallStream
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseEvent, SseParser


@dataclass(frozen=True, slots=True)
class RecallCall:
    id: str
    arguments: str  # JSON, as the model wrote it
    name: str = ""  # of the tool of ours


@dataclass(frozen=True, slots=True)
class RoundCalls:
    """The tool calls of a round: ours, and the ids of those that are the client's."""

    own: tuple[RecallCall, ...] = ()
    others: tuple[str, ...] = ()


class RecallRounds(ABC):
    """The rounds of one answer; `own` are the names of our tools."""

    id = ""  # of the response for the client, in APIs that can continue from it
    real_id = ""  # the provider's id of the last round

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        self._own = own
        self._sums_usage = sums_usage  # for a client that finds the size of its context in the last of `iterations`
        self._usage: JsonValue = None  # of this round
        self._is_over = False  # this round
        self._usages_before: tuple[JsonValue, ...] = ()  # of the rounds that are over

    @property
    def usages(self) -> tuple[JsonValue, ...]:
        """Return the provider's counts so far, round by round.

        Most clients are given the last one alone: they take a count for the size of their context window, and compact
        it by that.
        """
        return (*self._usages_before, *((self._usage,) if self._usage else ()))

    @property
    def _is_later(self) -> bool:
        """Return whether this is not the first round."""
        return bool(self._usages_before)

    @property
    def calls(self) -> RoundCalls:
        """The calls of this round; none until it has ended."""
        calls = list(self._calls()) if self._is_over else []
        own = tuple(RecallCall(id, arguments, name) for id, name, arguments in calls if name in self._own)
        return RoundCalls(own, tuple(id for id, name, _ in calls if name not in self._own))

    def next_round(self) -> list[JsonObject]:
        """Start the next round; return the model's output of this one, to be sent back with our results."""
        said = self._said_items()
        self._usages_before += (self._usage,)
        self._begin()
        return said

    @abstractmethod
    def _calls(self) -> Iterator[tuple[str, str, str]]:
        """The tool calls of this round: their ids, names and arguments."""

    @abstractmethod
    def _said_items(self) -> list[JsonObject]:
        """Return the model's output of this round, as items of a conversation."""

    @abstractmethod
    def _begin(self) -> None:
        """Reset the state of the round, except for output that the client has seen."""


class RecallBody(RecallRounds):
    """Rounds that come in one piece each."""

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        super().__init__(own, sums_usage)
        self._body: JsonObject = {}

    def take(self, body: JsonObject) -> RoundCalls:
        """Read a round; return its calls."""
        self._body = body
        self._usage = body.get("usage")
        self._is_over = True
        return self.calls

    @abstractmethod
    def join_rounds(self) -> JsonObject:
        """Return all rounds as one answer, without our calls."""


class RecallStream(RecallRounds):
    """Rounds that come event by event; the end of one is held back until it is known whether another follows."""

    def __init__(self, own: Collection[str], sums_usage: bool = False) -> None:
        super().__init__(own, sums_usage)
        self._held: list[tuple[SseEvent, JsonObject | None]] = []
        self._begin()

    def feed(self, raw: bytes) -> bytes:
        """Return the output for the client after this event."""
        event = next(iter(SseParser().feed(raw + b"\n\n")), None)
        if event is None:  # a comment
            return raw
        try:
            value = json.decode(event.data)
        except ParseError:
            value = None
        return self._feed(event, dict(value), raw) if isinstance(value, dict) else self._feed_text(event, raw)

    def ending(self) -> bytes:
        """Return the buffered output of the last round."""
        return b"".join(
            b"data: " + event.data + b"\n\n" if value is None else event_bytes(event, self._finish_event(value))
            for event, value in self._held
        )

    @abstractmethod
    def _feed(self, event: SseEvent, value: JsonObject, raw: bytes) -> bytes: ...

    def _feed_text(self, event: SseEvent, raw: bytes) -> bytes:
        """Return the output for the client after an event that is not a JSON object."""
        return raw

    def _finish_event(self, value: JsonObject) -> JsonObject:
        """Return a buffered event in the form in which it is sent."""
        return value


def event_bytes(event: SseEvent, value: JsonValue) -> bytes:
    """Return the event with other data."""
    name = f"event: {event.name}\n".encode() if event.name else b""
    return name + b"data: " + json.encode(value) + b"\n\n"


def valid_arguments(arguments: str) -> str:
    """Return the model's arguments, or `{}`: some providers reject a conversation with arguments that are no object."""
    try:
        value = json.decode(arguments.encode("utf-8", "replace"))
    except ParseError:
        return "{}"
    return arguments if isinstance(value, Mapping) else "{}"


def gap(before: str, after: str) -> str:
    """Return what separates the texts of two rounds: neither was written to follow on the other at once."""
    return PARAGRAPH if before and not before[-1].isspace() and not after[0].isspace() else ""


DONE = b"[DONE]"
_FORCING = ("required", "any")  # choices of a tool without which there is no answer
Place = tuple[str, ...]  # the names around a value in a body
ITEM = "*"  # in a place: an item of a list
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_PLAIN_TIERS = ("auto", "default", "standard", "standard_only", "on_demand", "flex")  # at the listed prices, or below
_EXTRAS = ("background", "service_tier", "speed", "inference_geo", "modalities", "audio")
_SEARCHES = ("plugins", "search_parameters", "web_search_options", "enable_search")
METHOD = "{method}"  # in a path: what to do, and no id
ROOT = "/v1"  # where the paths of an API begin; the `base_url` of a provider includes its own root


@dataclass(frozen=True, slots=True)
class Usage:
    input_tokens: int = 0  # all that the model read, from the provider's prompt cache or not
    output_tokens: int = 0  # all that it wrote, its reasoning included
    cached_tokens: int = 0  # read from the prompt cache
    cache_write_tokens: int = 0  # put there
    reasoning_tokens: int = 0
    long_write_tokens: int = 0  # of those put there, for the longer of the lives that the provider sells
    web_searches: int = 0  # by the provider, which charges for each

    def merge(self, other: "Usage") -> "Usage":
        """Return the larger of each count: in a stream counts only grow, and may come twice or in parts."""
        return Usage(*(max(getattr(self, name), getattr(other, name)) for name in self.__slots__))

    def plus(self, other: "Usage") -> "Usage":
        """Return the sum of two answers."""
        return Usage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class CacheMark:
    """A mark of the client's, up to which the provider is to cache."""

    start: int  # its position in the body
    ttl: str  # that it asks for; empty for the provider's own choice


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """Facts about an answer."""

    model: str = ""  # as the provider names it
    finish: str = ""  # why the answer ended, in the provider's word
    usage: Usage | None = None
    is_complete: bool = False  # the provider said that this was all
    unreadable: int = 0  # events that mean nothing
    cleared_tokens: int = 0  # that the provider took out of the request before the model read it
    response_id: str = ""  # where the API lets clients go on from an answer by its id
    miss_reason: str = ""  # why the prompt cache was missed, in the provider's word

    def update(self, model: Raw | None, finish: str, usage: Usage | None) -> "ReplyFacts":
        """Return the same object if nothing changes: most events contain only text."""
        name = self.model or read.string(model)
        if name == self.model and not finish and usage is None:
            return self
        both = self.usage.merge(usage) if self.usage and usage else usage or self.usage
        return replace(self, model=name, finish=finish or self.finish, usage=both)


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    """A request whose address names the model: what follows the provider's address, and the body for it."""

    path: str
    query: str
    body: bytes


class WireFormat(ABC):
    name: ClassVar[str]  # in notes, recordings and statistics
    paths: ClassVar[tuple[str, ...]]  # where clients ask us; the first is the one that messages mention
    count_paths: ClassVar[tuple[str, ...]] = ()  # where tokens are counted; none where the API has no such
    relayed: ClassVar[tuple[str, ...]] = ()  # further paths of the API, which pass untouched; `{rest:path}` is anything
    beginnings: ClassVar[tuple[str, ...]] = ()  # of paths that are no other API's, whether or not they are relayed
    uploads: ClassVar[tuple[str, ...]] = ()  # further such paths, where a body may be a form with files in it
    stateless: ClassVar[tuple[str, ...]] = ()  # those of both at which no provider keeps anything; `:` ends a prefix
    compaction: ClassVar[str] = ""  # the one of those that is paid for as a question: the conversation is compacted
    provider_types: ClassVar[tuple[str, ...]]  # in the settings, of providers that answer; advice names the first
    default_headers: ClassVar[tuple[tuple[str, str], ...]] = ()  # sent upstream if the client omits them
    client_header: ClassVar[str] = ""  # one that only clients of this API send

    conversation: ClassVar[str] = "messages"  # the member of a request that holds the messages
    system_member: ClassVar[str] = ""  # the one for the system's text; empty where that is a message
    has_system_messages: ClassVar[bool] = True  # messages of the system are instructions wherever they stand
    previous_response: ClassVar[str] = ""  # the one that names the answer to continue from, which the provider has
    stored_conversation: ClassVar[str] = ""  # the one that names a conversation that the provider has
    has_cache_marks: ClassVar[bool] = False  # clients mark what to put into the prompt cache; else every prefix is
    function_types: ClassVar[tuple[str, ...]] = ("function",)  # of tools that the client runs; "" for those without
    schema_member: ClassVar[str] = "parameters"  # of such a tool
    tool_choice: ClassVar[str] = "tool_choice"  # the member that may name a tool which has to be called
    searching: ClassVar[tuple[str, re.Pattern[str]] | None] = None  # whose models load deferred tools, and which
    searching_beta: ClassVar[tuple[bytes, bytes]] = b"", b""  # the header that such a provider asks for
    search_tool: ClassVar[str] = ""  # what such a model calls to search; "" where the tool has a name of its own
    priced_tools: ClassVar[re.Pattern[str]] = re.compile(
        r"(?:function|custom)?"
    )  # types, if the answer counts the cost
    surcharges: ClassVar[tuple[str, ...]] = (*_EXTRAS, *_SEARCHES)  # members that may cost more than an answer counts
    has_error_event: ClassVar[bool] = True  # a stream may end with one; else clients do not expect it there

    ping: ClassVar[bytes] = b": waiting\n\n"  # keeps a stream open without any content
    recall_stream: ClassVar[type[RecallStream]]
    recall_body: ClassVar[type[RecallBody]]
    call_stream: ClassVar[type[CallStream]]

    _news: ClassVar[re.Pattern[bytes]]  # in events that hold more than the next piece of text
    _error_types: ClassVar[Mapping[int, str]] = {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        429: "rate_limit_error",
    }
    _server_error: ClassVar[str] = "server_error"

    # Ids of objects that a provider keeps

    def is_whole(self, place: Place, holder: Mapping[str, JsonValue]) -> bool:
        """Return whether an object's own id is harmless: of a call, of a message, or of an item with its contents."""
        return place == (self.conversation, ITEM) and "role" in holder

    def is_opaque(self, place: Place, holder: Mapping[str, JsonValue], name: str) -> bool:
        """Return whether a member holds words of the client's own, such as the arguments of a call."""
        return False

    # Prompt cache

    def cache_ttl(self, body: JsonBody) -> str | None:
        """Return the cache lifetime that the client requests, such as "24h"; "" for the provider's default.

        None means that it sets no marks, without which some providers do not cache.
        """
        asked = read.members(body.members.get("prompt_cache_options")).get("ttl")
        return read.string(asked) or read.string(body.members.get("prompt_cache_retention"))

    def output_limit(self, body: JsonBody) -> int:
        """Return the most tokens that the answer may have; 0 if the client sets no limit."""
        given = (read.value(body.members.get(name)) for name in _OUTPUT_LIMITS)
        return next((one for one in given if type(one) is int and one > 0), 0)

    def surcharge(self, body: JsonBody) -> str:
        """Return the place of what costs more than an answer counts, such as faster service; "" if there is none."""
        if body.is_crowded:
            return "a body of too many values to be read"
        asked = {name: read.value(body.members[name]) for name in self.surcharges if body.has(name)}
        return next((name for name, value in asked.items() if _costs_more(name, value)), "") or self._costly_tool(body)

    def _costly_tool(self, body: JsonBody) -> str:
        """Return the type of a tool by which the provider does what the answer does not count."""
        offered = (read.members(raw) for listed in self.tool_lists(body) for raw in read.array(listed))
        types = (read.string(tool.get("type")) for tool in offered)
        return next((f"tools.{each or 'type'}" for each in types if not self.priced_tools.fullmatch(each)), "")

    def cache_marks(self, body: JsonBody) -> list[CacheMark]:
        """Return the marks that the client sets, in the order of the body; none where the API has no such."""
        return []

    def add_cache_mark(self, body: JsonBody, message: int | None, ttl: str) -> Edit | None:
        """Mark the end of a message, or of everything before the messages; None if no mark can be placed there."""
        return None

    # Addresses

    def upstream_path(self, base_url: str, path: str = "") -> str:
        """Return what follows a provider's `base_url`, for a path of ours; without one, for that of questions."""
        return (path or self.paths[0]).removeprefix(ROOT)

    def base_url(self, base_url: str) -> str:
        """Return where this API begins at a provider that has several."""
        return base_url

    def address(self, body: bytes, path: str) -> UpstreamAddress | None:
        """Return the path for a request whose path contains the model; None if the path is fixed."""
        return None

    def models_path(self, base_url: str) -> str:
        """Return what follows a provider's `base_url` where it lists its models."""
        return "/models"

    def key_header(self, key: bytes) -> tuple[bytes, bytes]:
        return b"authorization", b"Bearer " + key

    def model_entry(self, key: str, provider: str) -> JsonObject:
        """Return the entry of one model in a list."""
        return {"id": key, "object": "model", "created": 0, "owned_by": provider}

    def model_list(self, models: Sequence[tuple[str, str]]) -> JsonObject:
        """Return the answer that lists models, each given with its provider."""
        return {"object": "list", "data": [self.model_entry(*model) for model in models]}

    # Requests

    def messages(self, body: JsonBody, remembered: RememberedMessages | None = None) -> tuple[Message, ...]:
        """Return the messages of a request; those that are remembered are not read again."""
        items = list(body.items(body.members.get(self.conversation)))
        data = [body.body[start:end] for _, start, end in items]

        def content(place: int) -> Content:
            raw = items[place][0]
            return self._content(Fragment(data[place], raw), raw)

        if remembered is None:
            contents = [content(place) for place in range(len(items))]
        else:
            contents = remembered.contents([(self.name, each) for each in data], content)
        return tuple(
            Message(said.role, said.parts, start, end, said)
            for said, (_, start, end) in zip(contents, items, strict=True)
        )

    @abstractmethod
    def _content(self, fragment: Fragment, raw: Raw) -> Content:
        """Return what one message says, from its own bytes alone."""

    def apart(self, body: JsonBody) -> tuple[Part, ...]:
        """Return the client's instructions that are no message."""
        return ()

    def tools(self, body: JsonBody) -> Iterator[tuple[str, Raw]]:
        """Return the tools that the client offers, each with its name."""
        offered = (raw for listed in self.tool_lists(body) for raw in read.array(listed))
        return ((self._tool_name(read.members(raw)), raw) for raw in offered)

    def tool_lists(self, body: JsonBody) -> Iterator[Raw]:
        """Return the arrays in which the client describes its tools."""
        if (listed := body.members.get("tools")) is not None:
            yield listed

    def _tool_name(self, tool: RawObject) -> str:
        return read.string(tool.get("name"))

    def forces_tool(self, body: JsonBody) -> bool:
        """Return whether the model has to call a tool: any of them, or one that the client names."""
        choice = body.members.get(self.tool_choice)
        if choice is None or read.is_string(choice):
            return read.string(choice) in _FORCING
        asked = read.members(choice)
        kind = read.string(asked.get("type"))
        if kind == "allowed_tools":
            allowed = read.members(asked.get("allowed_tools")) or asked
            return read.string(allowed.get("mode")) in _FORCING
        return bool(asked) and kind not in ("auto", "none")

    def read_from(self, body: JsonBody) -> int:
        """Return the place of the first message that the model reads: a provider may have compacted those before."""
        return 0

    def is_cleared(self, body: JsonBody) -> bool:
        """Return whether the client lets the provider remove old messages or results before the model reads them."""
        return False

    def is_answer_stored(self, body: JsonBody) -> bool:
        """Return whether the provider stores its answer, so that a request can continue from its id."""
        return False

    @abstractmethod
    def new_message(self, role: Role, text: str) -> JsonObject: ...

    @abstractmethod
    def new_tool(self, name: str, description: str, schema: JsonObject) -> JsonObject: ...

    def add_tool(self, body: JsonBody, tool: JsonObject) -> Edit:
        """Add a tool, in the form of this API, after the client's, which keep their place in the prompt cache."""
        return body.append("tools", [tool])

    def functions(self, body: JsonBody) -> Iterator[tuple[str, Raw]]:
        """Return the tools that can be left out: functions of the client's, without a mark of the prompt cache."""
        for raw in (each for listed in self.tool_lists(body) for each in read.array(listed)):
            tool = read.members(raw)
            is_function = read.string(tool.get("type")) in self.function_types
            if is_function and "cache_control" not in tool and (name := self._tool_name(tool)):
                yield name, raw

    def definition(self, tool: Raw) -> tuple[str, JsonObject]:
        """Return the description of such a tool, and the schema of its arguments."""
        outer = read.members(tool)
        about = read.members(outer.get("function")) or outer
        schema = read.value(about.get(self.schema_member) or about.get("parameters"))
        return read.string(about.get("description")), read.as_object(schema)

    def replace_tools(self, body: JsonBody, removed: Collection[str], added: Sequence[JsonObject]) -> list[Edit]:
        """Leave out tools of the client's, and add others, in the form of this API, after those that stay."""
        listed = next(self.tool_lists(body))
        return [(*body.span(listed), self._tools_without(body, listed, removed, added))]

    def _tools_without(
        self, body: JsonBody, listed: Raw, removed: Collection[str], added: Sequence[JsonObject]
    ) -> bytes:
        spans = (body.span(raw) for raw in read.array(listed) if self._tool_name(read.members(raw)) not in removed)
        kept = [body.body[start:end] for start, end in spans]
        return b"[" + b",".join([*kept, *map(json.encode, added)]) + b"]"

    @abstractmethod
    def calls(self, body: JsonBody) -> Iterator[CallPlace]:
        """Return the calls of the client's functions in the conversation."""

    @abstractmethod
    def new_tool_results(self, results: Iterable[tuple[str, JsonValue]], names: Iterable[str] = ()) -> list[JsonObject]:
        """Return the messages that hold results, each given with the id of its call; `names` are their tools.

        A result is a text, or what `found_tools` returns.
        """

    # Deferred tools, where the provider loads them

    def defer_tools(self, body: JsonBody, names: Collection[str], search: JsonObject) -> list[Edit]:
        """Mark tools as deferred, and add the search behind all others."""
        ends = (body.span(raw)[1] - 1 for name, raw in self.functions(body) if name in names)
        return [*((end, end, b',"defer_loading":true') for end in ends), self.add_tool(body, search)]

    def new_search_tool(self, name: str, description: str, schema: JsonObject) -> JsonObject:
        """Return the tool by which a model searches for deferred ones."""
        return self.new_tool(name, description, schema)

    def found_tools(self, tools: Sequence[tuple[str, JsonObject]]) -> JsonValue:
        """Return the result of a search, for tools given with their names and as the client described them."""
        return [tool for _, tool in tools]

    def new_search_call(self, call_id: str, name: str, arguments: JsonObject) -> JsonObject:
        """Return the message with which a model searches."""
        raise NotImplementedError(f"{self.name} loads no deferred tools")

    def add_items(self, body: JsonBody, items: Sequence[JsonObject]) -> Edit:
        """Add messages, in the form of this API, to the end of the conversation."""
        return body.append(self.conversation, items)

    def add_system(self, body: JsonBody, messages: tuple[Message, ...], text: str) -> list[Edit]:
        """Append to the system prompt; no edits if there is no place for it."""
        before = body.members.get(self.system_member)
        if before is None or bytes(before) == b"null":
            return [body.set(self.system_member, text)]
        return body.add_text(before, text)

    def add_reminder(self, body: JsonBody, messages: tuple[Message, ...], text: str) -> list[Edit]:
        """Add to the end of the conversation; no edits where there is no place for it."""
        if messages[-1].role != "user":  # of all roles, most providers take this one after the results of tools
            return [self.add_items(body, [self.new_message("user", text)])]
        content = self._content_of(body, -1)
        return [] if content is None else self._add_to_message(body, content, text)

    def ask_usage(self, body: JsonBody) -> Edit | None:
        """Ask for the usage at the end of a stream; None where it comes unasked, or the client decides on it."""
        return None

    def clear_thinking(self, body: JsonBody, keep_turns: int) -> Edit | None:
        """Ask the provider to drop the thinking of all but the newest turns; None if it cannot, or must not."""
        return None

    def hide_usage(self, events: bytes) -> bytes:
        """Return whole events without those that are sent only because `ask_usage` asked for them."""
        return events

    def _content_of(self, body: JsonBody, at: int) -> Raw | None:
        """Return the content of a message, if it is a string or blocks."""
        content = read.members(read.array(body.members.get(self.conversation))[at]).get("content")
        return content if content is not None and (read.is_string(content) or read.is_array(content)) else None

    def _add_to_message(self, body: JsonBody, content: Raw, text: str) -> list[Edit]:
        return body.add_text(content, text)

    # Summaries

    @abstractmethod
    def summary_request(self, model: str, instructions: str, prompt: str, max_tokens: int) -> JsonObject:
        """Return a minimal request: no stream, no tools, only fields that every provider supports."""

    @abstractmethod
    def answer_text(self, answer: JsonObject) -> str:
        """Return the text of a complete response."""

    def token_count(self, tokens: int) -> JsonObject:
        """Return the answer to a client that has tokens counted."""
        return {"input_tokens": tokens}

    # Replies

    @abstractmethod
    def usage(self, value: JsonValue) -> Usage | None:
        """Return the counts of a usage object; None if it is none."""

    def facts_after(self, facts: ReplyFacts, data: bytes) -> ReplyFacts:
        """Return the facts after an event with this data."""
        if data == DONE:
            return replace(facts, is_complete=True)
        if facts.model and data.startswith(b"{") and data.endswith(b"}") and not self._news.search(data):
            return facts
        members = read.json_object(data)
        return replace(facts, unreadable=facts.unreadable + 1) if members is None else self._event(facts, members)

    def facts_of(self, body: bytes) -> ReplyFacts:
        """Return the facts of a complete response."""
        members = read.json_object(body)
        if members is None:
            return ReplyFacts(unreadable=1)
        return replace(self._read_body_facts(ReplyFacts(), members), is_complete=True)

    @abstractmethod
    def _event(self, facts: ReplyFacts, members: RawObject) -> ReplyFacts: ...

    @abstractmethod
    def _read_body_facts(self, facts: ReplyFacts, members: RawObject) -> ReplyFacts: ...

    # Errors

    def error_body(self, status: int, code: str, message: str) -> JsonObject:
        return {"error": {"message": message, "type": self._error_type(status), "param": None, "code": code}}

    def error_event(self, status: int, code: str, message: str) -> bytes:
        """Return the event that ends a stream; never `[DONE]`: a stream that broke off is not done."""
        return b"data: " + json.encode(self.error_body(status, code, message)) + b"\n\n"

    def refusal_event(self, status: int, body: bytes, message: str) -> bytes:
        """Return a provider's own error as the event that ends a stream; one of ours if it sent none that is JSON."""
        try:
            value = json.decode(body)
        except ParseError:
            value = None
        value = value[0] if isinstance(value, Sequence) and not isinstance(value, str) and value else value
        if isinstance(value, Mapping) and isinstance(value.get("error"), Mapping | str):
            return self._own_error_event(dict(value))
        return self.error_event(status, "upstream_refused", message)

    def _own_error_event(self, value: JsonObject) -> bytes:
        return b"data: " + json.encode(value) + b"\n\n"

    def _error_type(self, status: int) -> str:
        return self._error_types.get(status, "invalid_request_error" if status < 500 else self._server_error)


def _costs_more(name: str, value: JsonValue) -> bool:
    """Return whether a member asks for more than tokens at their listed prices, or for an answer that comes later."""
    match name:
        case "service_tier":
            return value not in _PLAIN_TIERS
        case "speed":
            return value not in ("standard", "normal")
        case "inference_geo":
            return value != "global"
        case "modalities":
            return value != ["text"]
        case _:
            return value is not False


def count(usage: JsonValue, *path: str) -> int:
    """Return the whole number at a path; anything else counts nothing."""
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    if isinstance(usage, bool) or not isinstance(usage, int | float) or not 0 <= usage < 2**53:
        return 0
    return int(usage)
