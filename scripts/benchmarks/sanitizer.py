"""Agent sessions replayed turn by turn: what is saved, what it costs, and whether what was sent stays as it was.

A provider's cache holds as long as a request begins with the bytes of the one before.
"""

import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import corpus
from timing import median, p95, table

from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.config.sections import SanitizerSettings as Settings
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target
from kimi_proxy.services.chat.decisions import ChatDecisions
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.prompt_cache import PromptCaches, never
from kimi_proxy.services.chat.sanitizer import Sanitizer
from kimi_proxy.services.metrics import Metrics
from kimi_proxy.services.store.sqlite.store import SqliteStore
from kimi_proxy.services.workers.pool import Workers

TURNS = 25
SESSIONS = 4
RESTART_AT = 12  # turns after which another process goes on
DAY_S = 86_400

GOALS = (
    "Find out why the build fails, and fix it.",
    "Where is the timeout of a connection set, and what happens when it is exceeded?",
    "Clean up the handling of sessions.",
    "Which orders were refused, and why?",
)


@dataclass(slots=True)
class Figures:
    turns: int = 0
    same: int = 0  # turns whose earlier messages left as they had left before
    late: int = 0  # outputs that went out whole because time was over
    before: int = 0
    after: int = 0
    added_ms: list[float] = field(default_factory=list)


def main() -> None:
    rows = [(wire.format.name, *_row(asyncio.run(_replayed(wire)))) for wire in Wire]
    head = ("API", "turns", "earlier messages same", "tokens", "left", "saved", "median ms", "p95 ms", "out of time")
    table(f"Sanitizer, {SESSIONS} sessions of {TURNS} turns, restarted after turn {RESTART_AT}", head, rows)


def _row(figures: Figures) -> Sequence[object]:
    return (
        figures.turns,
        f"{figures.same / figures.turns:.0%}",
        f"{figures.before:,}",
        f"{figures.after:,}",
        f"{1 - figures.after / figures.before:.0%}",
        f"{median(figures.added_ms):.1f}",
        f"{p95(figures.added_ms):.0f}",
        figures.late,
    )


async def _replayed(wire: Wire) -> Figures:
    figures = Figures()
    workers = Workers()
    await workers.warm()
    await asyncio.sleep(2)  # as a server has had the time to
    try:
        for seed in range(SESSIONS):
            with tempfile.TemporaryDirectory() as home:
                await _session(wire, seed, Path(home), workers, figures)
    finally:
        await workers.close()
    return figures


async def _session(wire: Wire, seed: int, home: Path, workers: Workers, figures: Figures) -> None:
    before: list[bytes] = []
    requests = list(_requests(wire, seed))
    for part, last_request in ((requests[:RESTART_AT], never), (requests[RESTART_AT:], _just_now)):
        store = await SqliteStore.open(home, ttl_s=DAY_S, max_bytes=1 << 30, timeout_s=2.0)
        decisions, facts = ChatDecisions(store.originals, store.decisions), ChatFacts(store.facts)
        caches = PromptCaches(last_request)
        sanitizer = Sanitizer(Settings(), "http://127.0.0.1:8000", decisions, facts, workers, Metrics(), caches)
        for request in part:
            before = await _turn(request, sanitizer, before, figures)
        decided = await store.decisions.totals(LOCAL)
        await store.close()
    figures.late += decided.outputs.get("out_of_time", 0)


async def _just_now(who: Caller, session: str) -> float:
    """The restart is short enough for the provider's prompt cache to outlive it."""
    return time.time()


async def _turn(request: Request, sanitizer: Sanitizer, before: list[bytes], figures: Figures) -> list[bytes]:
    draft = Draft(request, Target("kimi", "kimi-k2"), Session("bench"), LOCAL)
    began = time.perf_counter()
    left = await sanitizer.change(draft)
    figures.added_ms.append((time.perf_counter() - began) * 1000)
    sent = [left.request.body[message.start : message.end] for message in left.request.messages]
    figures.turns += 1
    figures.same += sent[: len(before)] == before
    figures.before += tokens.count(request.body.decode())
    figures.after += tokens.count(left.request.body.decode())
    return sent


def _requests(wire: Wire, seed: int) -> Iterator[Request]:
    """A session as it grows: every few turns the user speaks, in between tools do."""
    rng = random.Random(seed)
    said: list[JsonValue] = []
    for turn in range(TURNS):
        if turn % 6 == 0:
            said.append(user(wire, rng.choice(GOALS)))
        name, arguments, text = output(rng, turn)
        said += called(wire, f"call_{seed}_{turn:04}_{rng.getrandbits(64):016x}", name, arguments, text)
        yield parse(body(wire, said), wire)


def output(rng: random.Random, turn: int) -> tuple[str, JsonObject, str]:
    lines = rng.choice((15, 40, 120, 300, 900))
    match rng.randrange(5):
        case 0:
            return "bash", {"command": "make test"}, f"run {turn}\n{corpus.text('logs', lines)}"
        case 1:
            return "read_file", {"path": f"src/part_{turn}.py"}, f"# part {turn}\n{corpus.text('code', lines)}"
        case 2:
            return "read_file", {"path": f"docs/page_{turn}.md"}, f"# Page {turn}\n\n{corpus.text('docs', lines)}"
        case 3:
            rows = [{"order": i, "state": "paid", "total": rng.randrange(900), "turn": turn} for i in range(lines)]
            return "query", {"sql": "select * from orders"}, json.dumps(rows)
        case _:
            code = corpus.text("code", 3000).split("\n")
            hits = [f"src/part.py:{i}:{line}" for i, line in enumerate(code, 1) if "self" in line][:lines]
            return "bash", {"command": "rg self"}, "\n".join(hits)


def user(wire: Wire, text: str) -> JsonValue:
    if wire is Wire.RESPONSES:
        return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"role": "user", "content": text}


def called(wire: Wire, id: str, name: str, arguments: JsonObject, text: str) -> list[JsonValue]:
    written = json.dumps(arguments)
    match wire:
        case Wire.CHAT:
            call: JsonValue = {"id": id, "type": "function", "function": {"name": name, "arguments": written}}
            return [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": id, "content": text},
            ]
        case Wire.MESSAGES:
            return [
                {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": arguments}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]},
            ]
        case Wire.RESPONSES:
            return [
                {"type": "function_call", "call_id": id, "name": name, "arguments": written},
                {"type": "function_call_output", "call_id": id, "output": text},
            ]


def called_at_once(results: Sequence[tuple[str, JsonObject, str]], id: str) -> list[JsonValue]:
    """The chat messages of several tools that one answer called: what each is given, and what it printed."""
    calls: list[JsonValue] = []
    printed: list[JsonValue] = []
    for number, (name, arguments, text) in enumerate(results):
        call, result = called(Wire.CHAT, f"{id}_{number}", name, arguments, text)
        calls += call["tool_calls"]  # type: ignore[call-overload,operator]
        printed.append(result)
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *printed]


def body(wire: Wire, said: Sequence[JsonValue]) -> bytes:
    schema: JsonObject = {"type": "object", "properties": {"command": {"type": "string"}}}
    match wire:
        case Wire.CHAT:
            tool: JsonObject = {"type": "function", "function": {"name": "bash", "parameters": schema}}
            return json.dumps({"model": "m", "tools": [tool], "messages": said}).encode()
        case Wire.MESSAGES:
            tool = {"name": "bash", "input_schema": schema, "cache_control": {"type": "ephemeral"}}
            return json.dumps({"model": "m", "max_tokens": 9, "tools": [tool], "messages": said}).encode()
        case Wire.RESPONSES:
            tool = {"type": "function", "name": "bash", "parameters": schema}
            return json.dumps({"model": "m", "tools": [tool], "input": said}).encode()
