"""An agent that follows a script: its model's words are written down, what its tools answer is real.

`python -m tests.recordings.make` drives it through a proxy that records, against a provider that plays the model.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from tests.recordings.provider import CachingProvider, blocks
from tests.support.conversations import Assistant, Call, Item, Result, User, tool
from tests.support.evil import Heard, Line, http

from kimi_proxy.core import tokens
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.json import JsonValue

MAX_OUTPUT_CHARS = 30_000
SYSTEM = (Path(__file__).parent / "system.md").read_text("utf-8")
PATHS = {Wire.CHAT: "/v1/chat/completions", Wire.MESSAGES: "/v1/messages", Wire.RESPONSES: "/v1/responses"}
TOOLS: dict[str, dict[str, JsonValue]] = {
    "bash": {"command": {"type": "string", "description": "Run by bash in the project's folder."}},
    "read_file": {
        "path": {"type": "string", "description": "Relative to the project's folder."},
        "start": {"type": "integer", "description": "The first line, from 1."},
        "end": {"type": "integer", "description": "The last line."},
    },
    "edit_file": {
        "path": {"type": "string"},
        "old": {"type": "string", "description": "Text that stands in the file once, exactly as it is there."},
        "new": {"type": "string", "description": "What takes its place."},
    },
}


@dataclass(frozen=True, slots=True)
class Step:
    """What the model says, and the one tool that it calls; none ends its turn."""

    say: str = ""
    tool: str = ""
    arguments: dict[str, JsonValue] = field(default_factory=dict)
    after_s: float = 6.0  # the model's and the tool's time


def ask(text: str) -> User:
    return User(text)


def bash(command: str, say: str = "", after_s: float = 8.0) -> Step:
    return Step(say, "bash", {"command": command}, after_s)


def read(path: str, start: int = 0, end: int = 0, say: str = "") -> Step:
    lines: dict[str, JsonValue] = {"start": start, "end": end} if start else {}
    return Step(say, "read_file", {"path": path, **lines}, 5.0)


def edit(path: str, old: str, new: str, say: str = "") -> Step:
    return Step(say, "edit_file", {"path": path, "old": old, "new": new}, 7.0)


def done(text: str) -> Step:
    return Step(text, after_s=45.0)  # the user reads it and thinks


class Tools:
    """What an agent can do in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def use(self, name: str, arguments: dict[str, JsonValue]) -> str:
        match name, arguments:
            case "bash", {"command": str(command)}:
                return self._bash(command)
            case "read_file", {"path": str(path), **lines}:
                start, end = lines.get("start") or 1, lines.get("end") or 10**9
                assert isinstance(start, int)
                assert isinstance(end, int)
                numbered = enumerate((self._folder / path).read_text("utf-8").split("\n"), 1)
                return "\n".join(f"{number:6}\t{line}" for number, line in numbered if start <= number <= end)
            case "edit_file", {"path": str(path), "old": str(old), "new": str(new)}:
                text = (self._folder / path).read_text("utf-8")
                assert text.count(old) == 1, (path, old, text.count(old))
                (self._folder / path).write_text(text.replace(old, new), "utf-8")
                return f"{path} was edited."
        raise AssertionError(name)

    def _bash(self, command: str) -> str:
        bin = Path(sys.executable).parent
        env = {
            "PATH": f"{bin}:{os.environ['PATH']}",
            "HOME": str(self._folder),
            "PYTHONPATH": ".:src",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            ["bash", "-c", command], cwd=self._folder, env=env, capture_output=True, text=True, timeout=300, check=False
        )
        output = (
            (done.stdout + done.stderr).replace(str(bin.parent), "/opt/python").replace(str(self._folder), "/project")
        )
        output = re.sub(r"in \d+\.\d+s", "in 3.21s", output)
        if len(output) > MAX_OUTPUT_CHARS:
            half = MAX_OUTPUT_CHARS // 2
            output = f"{output[:half]}\n[{len(output) - 2 * half} characters left out]\n{output[-half:]}"
        return output if done.returncode == 0 else f"{output}\n[exit code {done.returncode}]"


def body(wire: Wire, model: str, items: Sequence[Item]) -> bytes:
    """As the usual clients of each API write it; those of Anthropic's mark what they want to have cached."""
    from tests.support import conversations

    offered = [tool(wire, name, properties) for name, properties in TOOLS.items()]
    written = json.loads(conversations.body(wire, items, (), model=model))
    match wire:
        case Wire.CHAT:
            written["messages"][0]["content"] = SYSTEM
            written = {"model": model, "tools": offered, "messages": written["messages"]}
        case Wire.MESSAGES:
            mark = {"cache_control": {"type": "ephemeral"}}
            last = written["messages"][-1]
            if isinstance(last["content"], str):
                last["content"] = [{"type": "text", "text": last["content"]}]
            last["content"][-1] |= mark
            system = [{"type": "text", "text": SYSTEM, **mark}]
            written = {
                "model": model,
                "max_tokens": 8000,
                "tools": offered,
                "system": system,
                "messages": written["messages"],
            }
        case Wire.RESPONSES:
            written = {
                "model": model,
                "instructions": SYSTEM,
                "tools": offered,
                "store": False,
                "input": written["input"],
            }
    return json.dumps(written, ensure_ascii=False).encode()


class Model:
    """Says what the script says next, and counts like a provider."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.next = Assistant()
        self.at = 0.0
        self.output_tokens = 0  # of the next answer; 0 counts what the script says
        self._provider = CachingProvider(wire, tokens.count)

    async def answer(self, heard: Heard, line: Line) -> None:
        said, calls = self.next.text, [json.dumps(call.arguments, ensure_ascii=False) for call in self.next.calls]
        written = self.output_tokens or tokens.count("".join((said, *calls))) + 12 * len(calls) + 3
        usage = self._provider.ask(blocks(Request(self.wire, heard.body), tokens.count), written, self.at)
        await line.send(
            http(
                json.dumps(
                    self._told(usage.input_tokens, usage.cached_tokens, usage.cache_write_tokens, written)
                ).encode()
            )
        )

    def _told(self, read: int, cached: int, kept: int, written: int) -> dict[str, JsonValue]:
        match self.wire:
            case Wire.CHAT:
                usage: JsonValue = {
                    "prompt_tokens": read,
                    "completion_tokens": written,
                    "prompt_tokens_details": {"cached_tokens": cached},
                }
                return {
                    "model": "m",
                    "choices": [{"message": {"role": "assistant", "content": self.next.text}, "finish_reason": "stop"}],
                    "usage": usage,
                }
            case Wire.MESSAGES:
                usage = {
                    "input_tokens": read - cached - kept,
                    "cache_read_input_tokens": cached,
                    "cache_creation_input_tokens": kept,
                    "output_tokens": written,
                }
                return {
                    "type": "message",
                    "model": "m",
                    "content": [{"type": "text", "text": self.next.text}],
                    "stop_reason": "end_turn",
                    "usage": usage,
                }
            case Wire.RESPONSES:
                usage = {
                    "input_tokens": read,
                    "input_tokens_details": {"cached_tokens": cached},
                    "output_tokens": written,
                }
                return {"model": "m", "status": "completed", "output": [], "usage": usage}


async def play(
    wire: Wire, model: str, script: Sequence[User | Step], tools: Tools, provider: Model, http: httpx.AsyncClient
) -> list[float]:
    """The whole script through the proxy; when each request was sent, by the clock of the script."""
    items: list[Item] = []
    at, times = 1_767_600_000.0, []
    for number, step in enumerate(script):
        if isinstance(step, User):
            items.append(step)
            continue
        call = Call(f"call_{number:03}", step.tool, step.arguments)
        provider.next, provider.at = Assistant(step.say, (call,) if step.tool else ()), at
        times.append(at)
        answer = await http.post(
            PATHS[wire], content=body(wire, model, items), headers={"content-type": "application/json"}
        )
        assert answer.status_code == 200, answer.text
        items.append(provider.next)
        if step.tool:
            items.append(Result(call.id, tools.use(step.tool, step.arguments)))
        at += step.after_s
    return times
