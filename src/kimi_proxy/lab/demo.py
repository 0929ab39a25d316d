"""The demo's settings, and the agent that plays a day through the proxy."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kimi_proxy.api.server import bind
from kimi_proxy.core import json as jsontext
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.sse import SseParser
from kimi_proxy.lab import demo_day
from kimi_proxy.lab.demo_day import Act, CompressSession, Day, Prune, Say, Script, ScriptedConversation
from kimi_proxy.lab.scripted_provider import ScriptedModel
from kimi_proxy.proxy.http import JsonClient

# A small context window fills up while a person watches.
_MODELS = (
    (demo_day.SMALL, "workshop", 20_800, 0.6, 0.15, 2.5),
    (demo_day.LARGE, "foundry", 131_072, 0.6, 0.15, 2.5),
    (demo_day.OTHER, "scriptorium", 65_536, 3.0, 0.3, 15.0),
    # Two models of one provider: requests that outgrow the smaller go to the larger.
    (demo_day.FERRY, demo_day.PROVIDER, demo_day.WINDOW, 0.1, 0.02, 0.4),
    (demo_day.LINER, demo_day.PROVIDER, demo_day.LARGER_WINDOW, 0.6, 0.15, 2.5),
)
THRESHOLD_TOKENS = 1000
_TURNED_OFF = ("sequential-thinking", "fast-filesystem", "json-query", "shrimp-task-manager")


def settings(model_port: int, pruner_port: int, proxy_port: int, python: str) -> str:
    """Return the text of a configuration file."""
    address = f"http://127.0.0.1:{model_port}"
    parts = [
        f'[mcp_pruner]\nhost = "127.0.0.1"\nport = {pruner_port}\n',
        f'[proxy]\nhost = "127.0.0.1"\nport = {proxy_port}\n',
        '[log]\nlevel = "warning"\n',
        # The same day on every machine; the tools of the day print less than in real work.
        f"[sanitizer]\nbudget_ms = 10000\nthreshold_tokens = {THRESHOLD_TOKENS}\n",
        f'[sanitizer.routing]\nfallback_models = ["{demo_day.LINER}"]\n',
        f'[providers.workshop]\nbase_url = "{address}/v1"\n',
        f'[providers.foundry]\nbase_url = "{address}/v1"\n',
        f'[providers.{demo_day.PROVIDER}]\nbase_url = "{address}/v1"\n',
        f'[providers.scriptorium]\ntype = "anthropic"\nbase_url = "{address}"\n',
        *(_model(*model) for model in _MODELS),
        f'[mcp.servers.{demo_day.DESK}]\ncommand = {json.dumps(python)}\nargs = ["-m", "kimi_proxy.lab.ticket_desk"]\n',
        *(f"[mcp.servers.{name}]\nenabled = false\n" for name in _TURNED_OFF),
    ]
    return "\n".join(parts)


def _model(name: str, provider: str, window: int, read: float, cached: float, written: float) -> str:
    return (
        f'[models."{name}"]\nprovider = "{provider}"\nmax_context_size = {window}\n'
        f"input_usd_per_million = {read}\ncached_usd_per_million = {cached}\noutput_usd_per_million = {written}\n"
    )


@dataclass(slots=True)
class StreamedCall:
    """A tool call, as far as it has been streamed."""

    id: str
    tool: str
    arguments: str = ""

    @property
    def read_arguments(self) -> JsonObject:
        """Return the arguments. Raise ParseError if they are not an object."""
        value = jsontext.decode(self.arguments.encode() or b"{}")
        if not isinstance(value, dict):
            raise ParseError("arguments of a tool are an object")
        return value


@dataclass(slots=True)
class StreamedReply:
    """The model's answer, as far as it has been streamed."""

    text: str
    calls: list[StreamedCall]

    def add(self, value: JsonValue) -> None:
        """Add an event of either API."""
        match value:
            case {"choices": [{"delta": {"tool_calls": [{"id": str(id), "function": {"name": str(tool)}}]}}, *_]} | {
                "content_block": {"type": "tool_use", "id": str(id), "name": str(tool)}
            }:
                self.calls.append(StreamedCall(id, tool))
            case {"choices": [{"delta": {"tool_calls": [{"function": {"arguments": str(more)}}]}}, *_]} | {
                "delta": {"type": "input_json_delta", "partial_json": str(more)}
            }:
                self.calls[-1].arguments += more
            case {"choices": [{"delta": {"content": str(text)}}, *_]} | {
                "delta": {"type": "text_delta", "text": str(text)}
            }:
                self.text += text


def read_stream(pieces: Iterable[bytes]) -> StreamedReply:
    reply = StreamedReply("", [])
    events = SseParser()
    for piece in pieces:
        for event in events.feed(piece):
            if event.data != b"[DONE]":
                reply.add(jsontext.decode(event.data))
    return reply


class PlayedTranscript:
    """A conversation as far as it has come, in the shape that its API wants."""

    def __init__(self, conversation: ScriptedConversation) -> None:
        self.conversation = conversation
        self.messages: list[JsonValue] = []
        self.turn = 0
        self._format = conversation.wire.format

    def body(self) -> JsonObject:
        schema: JsonObject = {"type": "object", "properties": {}, "additionalProperties": True}
        tools = [self._format.new_tool(name, about, schema) for name, about in demo_day.TOOLS.items()]
        head: JsonObject = {"model": self.conversation.model, "stream": True, "tools": tools}
        system = self.conversation.system
        if self._format.system_member:
            return {**head, "max_tokens": 1024, self._format.system_member: system, "messages": self.messages}
        return {**head, "messages": [self._format.new_message("system", system), *self.messages]}

    def add_user(self, text: str) -> None:
        self.messages.append(self._format.new_message("user", text))

    def add_reply(self, reply: StreamedReply) -> None:
        if self.conversation.wire is Wire.MESSAGES:
            texts: list[JsonValue] = [{"type": "text", "text": reply.text}] if reply.text else []
            blocks: list[JsonValue] = [
                {"type": "tool_use", "id": call.id, "name": call.tool, "input": call.read_arguments}
                for call in reply.calls
            ]
            self.messages.append({"role": "assistant", "content": [*texts, *blocks]})
            return
        calls: list[JsonValue] = [
            {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}
            for call in reply.calls
        ]
        called: JsonObject = {"tool_calls": calls} if calls else {}
        self.messages.append({"role": "assistant", "content": reply.text, **called})

    def add_results(self, results: Iterable[tuple[str, str]]) -> None:
        """Add what each call printed, by its id."""
        self.messages += self._format.new_tool_results(results)


BETWEEN_S = 0.9  # a person reads before the next word; divided by the speed
LOOK_S = 4.0  # a person should see the alert before it is dealt with; divided by the speed too
MAX_ROUNDS = 12
PRUNING: JsonObject = {
    "max_prune_ratio": 0.8,
    "min_keep_lines": 20,
    "timeout_ms": 5000,
    "annotate_lines": True,
    "include_markers": True,
}

Progress = Callable[[str], None]  # prints a line


class Agent:
    def __init__(self, proxy: JsonClient, pruner: JsonClient, speed: float, progress: Progress) -> None:
        self._proxy = proxy
        self._pruner = pruner
        self._speed = speed
        self._progress = progress

    async def work(self, day: Day) -> None:
        """Play all of a day, act by act."""
        script = Script(day.conversations.values())
        transcripts = {name: PlayedTranscript(conversation) for name, conversation in day.conversations.items()}
        for act in day.acts:
            await self._play(act, transcripts, script)
            await asyncio.sleep(BETWEEN_S / self._speed)

    async def _play(self, act: Act, transcripts: dict[str, PlayedTranscript], script: Script) -> None:
        match act:
            case Say(name):
                await self._take_turn(transcripts[name], script)
            case Prune():
                await self._prune(act)
            case CompressSession(name):
                await self._compress(name)

    async def _take_turn(self, transcript: PlayedTranscript, script: Script) -> None:
        turn = transcript.conversation.turns[transcript.turn]
        self._progress(f"{transcript.conversation.title}: {turn.said}")
        transcript.add_user(turn.said)
        for _ in range(MAX_ROUNDS):
            reply = await self._answer(transcript)
            transcript.add_reply(reply)
            if not reply.calls:
                break
            transcript.add_results([(call.id, await self._run(call, script)) for call in reply.calls])
            await asyncio.sleep(BETWEEN_S / 2 / self._speed)
        transcript.turn += 1

    async def _answer(self, transcript: PlayedTranscript) -> StreamedReply:
        wire = transcript.conversation.wire
        raw = await self._proxy.raw(
            "POST", wire.format.paths[0], transcript.body(), x_session_id=transcript.conversation.name
        )
        return read_stream([raw])

    async def _run(self, call: StreamedCall, script: Script) -> str:
        """Return a tool's output; the ticket system is called through the gateway."""
        if call.tool not in demo_day.AT_THE_DESK:
            return script.calls[call.id].prints
        params: JsonObject = {"name": call.tool, "arguments": call.read_arguments}
        message: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        match await self._proxy.ask("POST", f"/api/mcp-gateway/{demo_day.DESK}/rpc", message):
            case {"result": {"content": [{"text": str(text)}, *_]}}:
                return text
            case answer:
                return jsontext.encode(answer).decode()

    async def _prune(self, act: Prune) -> None:
        self._progress(f"the pruner is asked: {act.goal}")
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
        match await self._proxy.ask("POST", f"/api/compress/{name}", {"force": True}):
            case {"original_tokens": before, "compressed_tokens": after}:
                self._progress(f"{name} is compressed: {before} tokens become {after}")


NIGHT_S = 20.0  # from one day to the next


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of the days."""

    speed: float
    once: bool
    days: int  # 0 is no end
    seed: int


async def play_days(
    addresses: Mapping[str, str],
    model: ScriptedModel,
    stop: asyncio.Event,
    pace: Pace,
    progress: Progress,
    outcomes: Callable[[], Awaitable[Sequence[str]]],
) -> None:
    """Play day after day until `stop` is set or the last day is over; report the totals of each session at its end."""
    proxy = JsonClient(addresses["proxy"])
    pruner = JsonClient(addresses["pruner"])
    async with aclosing(proxy), aclosing(pruner):
        agent = Agent(proxy, pruner, pace.speed, progress)
        try:
            for number in count(1):
                today = demo_day.day(pace.seed, number)
                model.script = Script(today.conversations.values())
                await _unless(stop, agent.work(today))
                for line in await outcomes():
                    progress(line)
                if stop.is_set() or (pace.once and number >= pace.days):
                    return
                progress(f"day {number} is over")
                if number == pace.days:
                    await stop.wait()
                    return
                await _unless(stop, asyncio.sleep(NIGHT_S / pace.speed))
        finally:
            stop.set()


async def _unless(stop: asyncio.Event, work: Coroutine[object, object, None]) -> None:
    """Do `work`, or as much of it as there is time for before `stop`."""
    working = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopped], return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopped):
        task.cancel()
    await asyncio.wait([working, stopped])
    if not working.cancelled():
        working.result()


def configure(home: Path, model_port: int) -> Config:
    """Write the settings of a demo on free ports into `home`; return them."""
    # A program that takes one of the ports within the next second makes the start fail, with a message.
    with bind("127.0.0.1", 0) as pruner, bind("127.0.0.1", 0) as proxy:
        pruner_port = pruner.getsockname()[1]
        proxy_port = proxy.getsockname()[1]
    file = home / "config.toml"
    file.write_text(settings(model_port, pruner_port, proxy_port, sys.executable), "utf-8")
    return parse(file.read_text("utf-8"), {}, home).model_copy(update={"file": file})
