"""The scripted model: what it answers to a request, in the words of OpenAI's and of Anthropic's API."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from kimi_proxy.core import json as jsontext
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseParser
from kimi_proxy.lab.demo_day import (
    AT_THE_DESK,
    DESK,
    FERRY,
    LARGE,
    LARGER_WINDOW,
    LINER,
    OTHER,
    PROVIDER,
    RECOVER,
    SMALL,
    TOOLS,
    WINDOW,
    Act,
    Compress,
    Conversation,
    Day,
    Prune,
    Say,
    Script,
    Spoken,
)
from kimi_proxy.proxy.http import JsonClient

# A small window fills up while somebody watches.
_MODELS = (
    (SMALL, "workshop", 20_800, 0.6, 0.15, 2.5),
    (LARGE, "foundry", 131_072, 0.6, 0.15, 2.5),
    (OTHER, "scriptorium", 65_536, 3.0, 0.3, 15.0),
    # Two of one provider: what outgrows the smaller goes to the larger.
    (FERRY, PROVIDER, WINDOW, 0.1, 0.02, 0.4),
    (LINER, PROVIDER, LARGER_WINDOW, 0.6, 0.15, 2.5),
)
_TURNED_OFF = ("sequential-thinking", "fast-filesystem", "json-query", "shrimp-task-manager")


def settings(model_port: int, pruner_port: int, proxy_port: int, python: str) -> str:
    """The text of a configuration file."""
    address = f"http://127.0.0.1:{model_port}"
    parts = [
        f'[mcp_pruner]\nhost = "127.0.0.1"\nport = {pruner_port}\n',
        f'[proxy]\nhost = "127.0.0.1"\nport = {proxy_port}\n',
        '[log]\nlevel = "warning"\n',
        "[sanitizer]\nbudget_ms = 10000\n",  # the same day on every machine, however slow
        f'[providers.workshop]\nbase_url = "{address}/v1"\n',
        f'[providers.foundry]\nbase_url = "{address}/v1"\n',
        f'[providers.{PROVIDER}]\nbase_url = "{address}/v1"\n',
        f'[providers.scriptorium]\ntype = "anthropic"\nbase_url = "{address}"\n',
        *(_model(*model) for model in _MODELS),
        f'[mcp.servers.{DESK}]\ncommand = {json.dumps(python)}\nargs = ["-m", "kimi_proxy.lab.ticket_desk"]\n',
        *(f"[mcp.servers.{name}]\nenabled = false\n" for name in _TURNED_OFF),
    ]
    return "\n".join(parts)


def _model(name: str, provider: str, window: int, read: float, cached: float, written: float) -> str:
    return (
        f'[models."{name}"]\nprovider = "{provider}"\nmax_context_size = {window}\n'
        f"input_usd_per_million = {read}\ncached_usd_per_million = {cached}\noutput_usd_per_million = {written}\n"
    )


@dataclass(slots=True)
class Asked:
    """A tool call, as far as it has come."""

    id: str
    tool: str
    arguments: str = ""

    @property
    def given(self) -> JsonObject:
        value = jsontext.decode(self.arguments.encode() or b"{}")
        if not isinstance(value, dict):
            raise ParseError("arguments of a tool are an object")
        return value


@dataclass(frozen=True, slots=True)
class Heard:
    text: str
    calls: tuple[Asked, ...]


def heard(wire: Wire, pieces: Iterable[bytes]) -> Heard:
    words: list[str] = []
    calls: list[Asked] = []
    events = SseParser()
    hear = _hear_message if wire is Wire.MESSAGES else _hear_chunk
    for piece in pieces:
        for event in events.feed(piece):
            if event.data != b"[DONE]":
                hear(jsontext.decode(event.data), words, calls)
    return Heard("".join(words), tuple(calls))


def _hear_chunk(value: JsonValue, words: list[str], calls: list[Asked]) -> None:
    match value:
        case {"choices": [{"delta": {"tool_calls": [dict(call)]}}, *_]}:
            _hear_call(call, calls)
        case {"choices": [{"delta": {"content": str(text)}}, *_]}:
            words.append(text)


def _hear_call(call: JsonObject, calls: list[Asked]) -> None:
    match call:
        case {"id": str(id), "function": {"name": str(tool)}}:
            calls.append(Asked(id, tool))
        case {"function": {"arguments": str(more)}}:
            calls[-1].arguments += more


def _hear_message(value: JsonValue, words: list[str], calls: list[Asked]) -> None:
    match value:
        case {"content_block": {"type": "tool_use", "id": str(id), "name": str(tool)}}:
            calls.append(Asked(id, tool))
        case {"delta": {"type": "text_delta", "text": str(text)}}:
            words.append(text)
        case {"delta": {"type": "input_json_delta", "partial_json": str(more)}}:
            calls[-1].arguments += more


SUMMARY = """\
Goal: mend the VAT of invoices, which is a cent off from three lines on (invoice 1147, ticket 1130).
Done: found vat_of in shop/invoices.py, which rounds each line; it now rounds the sum once. The failing test passes.
Known: booking refuses an invoice that is off by 0.01. Exports and returns call gross_of, which calls vat_of.
Open: the same rounding in returns, a note for the release, invoices of February that were already sent."""

_MARKER = re.compile(r"prune_id=(prn_[0-9a-z]{16}) lignes (\d+)-(\d+)")
RECOVER_LINES = 30
PIECE = 14  # characters in a delta


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens as this provider counts them."""

    read: int
    cached: int
    written: int


def answer(request: Request, script: Script) -> Spoken:
    """What the script has for the newest message that it knows; to a stranger, a summary."""
    spoken = _known(request, script)
    if not any(call.tool == RECOVER for _, call in spoken.calls):
        return spoken
    found = _newest_marker(request) if RECOVER in request.tool_names else None
    if found is None:
        return script.after_call[spoken.calls[0][0]]
    id, call = spoken.calls[0]
    return Spoken(spoken.text, ((id, replace(call, arguments=found)),))


def _known(request: Request, script: Script) -> Spoken:
    for message in reversed(request.messages):
        for part in reversed(message.parts):
            if part.kind == "tool_result" and part.call_id in script.after_call:
                return script.after_call[part.call_id]
            if part.kind == "text" and message.role == "user" and part.text in script.after_text:
                return script.after_text[part.text]
    return Spoken(SUMMARY, ())


def _newest_marker(request: Request) -> JsonObject | None:
    """What the newest marker hides, as far as a model would want to read it at once."""
    for message in reversed(request.messages):
        for part in message.parts:
            if found := _MARKER.search(part.text):
                start, end = int(found[2]), int(found[3])
                return {"id": found[1], "start_line": start, "end_line": min(end, start + RECOVER_LINES)}
    return None


def frames(wire: Wire, spoken: Spoken, counts: Counts, id: str, model: str) -> Iterator[bytes]:
    """The answer as a stream of events."""
    if wire is Wire.MESSAGES:
        for value in _message_events(spoken, counts, id, model):
            yield b"event: %s\ndata: %s\n\n" % (str(value["type"]).encode(), jsontext.encode(value))
        return
    for chunk in _chunks(spoken, counts, id, model):
        yield b"data: %s\n\n" % jsontext.encode(chunk)
    yield b"data: [DONE]\n\n"


def whole(wire: Wire, spoken: Spoken, counts: Counts, id: str, model: str) -> JsonObject:
    """The answer in one piece."""
    if wire is Wire.MESSAGES:
        return _message(spoken, counts, id, model)
    calls: list[JsonValue] = [
        {"id": call_id, "type": "function", "function": {"name": call.tool, "arguments": _written(call.arguments)}}
        for call_id, call in spoken.calls
    ]
    message: JsonObject = {"role": "assistant", "content": spoken.text} | ({"tool_calls": calls} if calls else {})
    choice: JsonObject = {"index": 0, "message": message, "finish_reason": _finish(spoken)}
    head: JsonObject = {"id": id, "object": "chat.completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _usage(counts)}


def _chunks(spoken: Spoken, counts: Counts, id: str, model: str) -> Iterator[JsonObject]:
    head: JsonObject = {"id": id, "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk({"content": piece}) for piece in _pieces(spoken.text))
    for index, (call_id, call) in enumerate(spoken.calls):
        begun: JsonObject = {"name": call.tool, "arguments": ""}
        yield chunk({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": begun}]})
        for piece in _pieces(_written(call.arguments)):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, _finish(spoken))
    yield {**head, "choices": [], "usage": _usage(counts)}


def _usage(counts: Counts) -> JsonObject:
    return {
        "prompt_tokens": counts.read,
        "completion_tokens": counts.written,
        "total_tokens": counts.read + counts.written,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }


def _message(spoken: Spoken, counts: Counts, id: str, model: str) -> JsonObject:
    content: list[JsonValue] = [{"type": "text", "text": spoken.text}] if spoken.text else []
    content += [
        {"type": "tool_use", "id": call_id, "name": call.tool, "input": call.arguments}
        for call_id, call in spoken.calls
    ]
    usage: JsonObject = {
        "input_tokens": counts.read - counts.cached,
        "cache_read_input_tokens": counts.cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": counts.written,
    }
    head: JsonObject = {"id": id, "type": "message", "role": "assistant", "model": model, "content": content}
    return {**head, "stop_reason": "tool_use" if spoken.calls else "end_turn", "stop_sequence": None, "usage": usage}


def _message_events(spoken: Spoken, counts: Counts, id: str, model: str) -> Iterator[JsonObject]:
    message = _message(spoken, counts, id, model)
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    index = 0
    if spoken.text:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for piece in _pieces(spoken.text):
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        yield {"type": "content_block_stop", "index": 0}
        index = 1
    for call_id, call in spoken.calls:
        block: JsonObject = {"type": "tool_use", "id": call_id, "name": call.tool, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        delta: JsonObject = {"type": "input_json_delta", "partial_json": _written(call.arguments)}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
        index += 1
    ended: JsonObject = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": counts.written}}
    yield {"type": "message_stop"}


def _finish(spoken: Spoken) -> str:
    return "tool_calls" if spoken.calls else "stop"


def _written(arguments: JsonObject) -> str:
    return jsontext.encode(arguments).decode()


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


BETWEEN_S = 0.9  # a person reads before the next word; divided by the speed
LOOK_S = 4.0  # whoever watches should see the alert before it is dealt with; divided by the speed too
MAX_ROUNDS = 12
PRUNING: JsonObject = {
    "max_prune_ratio": 0.8,
    "min_keep_lines": 20,
    "timeout_ms": 5000,
    "annotate_lines": True,
    "include_markers": True,
}

Tell = Callable[[str], None]


class Talk:
    """A conversation as far as it has come, in the shape that its API wants."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self._format = conversation.wire.format
        self.messages: list[JsonValue] = []
        self.turn = 0

    @property
    def is_anthropic(self) -> bool:
        return self.conversation.wire is Wire.MESSAGES

    def body(self) -> JsonObject:
        about: JsonObject = {"model": self.conversation.model, "stream": True, "tools": self._tools()}
        system = self.conversation.system
        if self._format.system_member:
            return {**about, "max_tokens": 1024, self._format.system_member: system, "messages": self.messages}
        return {**about, "messages": [self._format.new_message("system", system), *self.messages]}

    def say(self, text: str) -> None:
        self.messages.append(self._format.new_message("user", text))

    def hear(self, said: Heard) -> None:
        if self.is_anthropic:
            words: list[JsonValue] = [{"type": "text", "text": said.text}] if said.text else []
            calls: list[JsonValue] = [
                {"type": "tool_use", "id": call.id, "name": call.tool, "input": call.given} for call in said.calls
            ]
            self.messages.append({"role": "assistant", "content": [*words, *calls]})
            return
        asked: list[JsonValue] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in said.calls
        ]
        called: JsonObject = {"tool_calls": asked} if asked else {}
        self.messages.append({"role": "assistant", "content": said.text, **called})

    def answer(self, results: list[tuple[str, str]]) -> None:
        """What each call printed, by its id."""
        self.messages += self._format.new_tool_results(results)

    def _tools(self) -> list[JsonValue]:
        schema: JsonObject = {"type": "object", "properties": {}, "additionalProperties": True}
        return [self._format.new_tool(name, about, schema) for name, about in TOOLS.items()]


class Agent:
    def __init__(self, proxy: JsonClient, pruner: JsonClient, speed: float, tell: Tell) -> None:
        self._proxy = proxy
        self._pruner = pruner
        self._speed = speed
        self._tell = tell

    async def work(self, day: Day) -> None:
        """Play all of a day, act by act."""
        script = Script(iter(day.conversations.values()))
        talks = {name: Talk(conversation) for name, conversation in day.conversations.items()}
        for act in day.acts:
            await self._play(act, talks, script)
            await asyncio.sleep(BETWEEN_S / self._speed)

    async def _play(self, act: Act, talks: dict[str, Talk], script: Script) -> None:
        match act:
            case Say(name):
                await self._take_turn(talks[name], script)
            case Prune():
                await self._prune(act)
            case Compress(name):
                await self._compress(name)

    async def _take_turn(self, talk: Talk, script: Script) -> None:
        turn = talk.conversation.turns[talk.turn]
        self._tell(f"{talk.conversation.title}: {turn.said}")
        talk.say(turn.said)
        for _ in range(MAX_ROUNDS):
            said = await self._asked(talk)
            talk.hear(said)
            if talk.turn == 0 and len(talk.messages) == 2:
                await self._name(talk)
            if not said.calls:
                break
            talk.answer([(call.id, await self._run(call, script)) for call in said.calls])
            await asyncio.sleep(BETWEEN_S / 2 / self._speed)
        talk.turn += 1

    async def _asked(self, talk: Talk) -> Heard:
        wire = talk.conversation.wire
        raw = await self._proxy.raw("POST", wire.format.paths[0], talk.body(), x_session_id=talk.conversation.name)
        return heard(wire, [raw])

    async def _name(self, talk: Talk) -> None:
        await self._proxy.ask("PATCH", f"/api/sessions/{talk.conversation.name}", {"title": talk.conversation.title})

    async def _run(self, call: Asked, script: Script) -> str:
        """What a tool prints; those of the ticket desk are asked through the gateway."""
        if call.tool not in AT_THE_DESK:
            return script.calls[call.id].prints
        params: JsonObject = {"name": call.tool, "arguments": call.given}
        message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        match await self._proxy.ask("POST", f"/api/mcp-gateway/{DESK}/rpc", message):
            case {"result": {"content": [{"text": str(text)}, *_]}}:
                return text
            case answer:
                return jsontext.encode(answer).decode()

    async def _prune(self, act: Prune) -> None:
        self._tell(f"the pruner is asked: {act.goal}")
        params: JsonObject = {
            "text": act.text,
            "goal_hint": act.goal,
            "source_type": act.source_type,
            "options": PRUNING,
        }
        message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "prune_text", "params": params}
        await self._pruner.ask("POST", "/rpc", message)

    async def _compress(self, name: str) -> None:
        await asyncio.sleep(LOOK_S / self._speed)
        match await self._proxy.ask("POST", f"/api/compress/{name}", {"force": False}):
            case {"original_tokens": before, "compressed_tokens": after}:
                self._tell(f"{name} is compressed: {before} tokens become {after}")
