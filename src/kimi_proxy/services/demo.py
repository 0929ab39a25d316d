"""The agent of the demo: it works through a written day as a real agent would, over HTTP and tool by tool."""

import asyncio
from collections.abc import Callable

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.features.demo.day import AT_THE_DESK, DESK, TOOLS, Act, Compress, Day, Prune, Say
from kimi_proxy.features.demo.hearing import Asked, Heard, heard
from kimi_proxy.features.demo.script import Conversation, Script
from kimi_proxy.proxy.visitor import Visitor

PATHS = {Wire.CHAT: "/v1/chat/completions", Wire.MESSAGES: "/v1/messages"}
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
        self.messages: list[JsonValue] = []
        self.turn = 0

    @property
    def is_anthropic(self) -> bool:
        return self.conversation.wire is Wire.MESSAGES

    def body(self) -> JsonObject:
        about: JsonObject = {"model": self.conversation.model, "stream": True, "tools": self._tools()}
        if self.is_anthropic:
            return {**about, "max_tokens": 1024, "system": self.conversation.system, "messages": self.messages}
        system: JsonObject = {"role": "system", "content": self.conversation.system}
        return {**about, "messages": [system, *self.messages]}

    def say(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

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
        if self.is_anthropic:
            blocks: list[JsonValue] = [
                {"type": "tool_result", "tool_use_id": id, "content": text} for id, text in results
            ]
            self.messages.append({"role": "user", "content": blocks})
            return
        self.messages += [{"role": "tool", "tool_call_id": id, "content": text} for id, text in results]

    def _tools(self) -> list[JsonValue]:
        schema: JsonObject = {"type": "object", "properties": {}, "additionalProperties": True}
        if self.is_anthropic:
            return [{"name": name, "description": about, "input_schema": schema} for name, about in TOOLS.items()]
        return [
            {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}
            for name, about in TOOLS.items()
        ]


class Agent:
    def __init__(self, proxy: Visitor, pruner: Visitor, speed: float, tell: Tell) -> None:
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
        raw = await self._proxy.raw("POST", PATHS[wire], talk.body(), x_session_id=talk.conversation.name)
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
