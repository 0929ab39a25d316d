"""Recorded sessions of Claude Code played through the proxy itself, in their own time, beside the same without it.

    scripts/bench played FOLDER… [--current] [--most N] [--policy NAME] [--clear-thinking]

Every request is built from its transcript and sent twice: to a provider that caches as Anthropic's pages say and keeps
its own bill, and to the same through a proxy in this process, whose clock is the recording's. Where the recording shows
that the client changed its prompt while the cache was warm, the client changes the message at which the provider had
stopped reading. Sub-agents are played with their parent's session id. An answer that uses a line which its request no
longer shows is charged an extra turn. Nothing leaves the machine.
"""

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from timing import table

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, decode
from kimi_proxy.lab.audit import name_source, numbers_of
from kimi_proxy.lab.measured import HIT, MeasuredRequest, MeasuredSession, measure, price_of
from kimi_proxy.lab.savings import CALL_TOKENS, READ_BACK_TOKENS
from kimi_proxy.lab.transcripts.claude_code import AGENT as CLAUDE_CODE
from kimi_proxy.lab.transcripts.places import find, load
from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, Transcript
from kimi_proxy.services.chat.handler import ChatRequest

sys.path.append(str(Path(__file__).parents[2]))

from sessions import NEW
from tests.support.cached_providers import Block, CachedProvider, Counts, anthropic, counted
from tests.support.evil import Heard, Line, evil, http

BETA = (b"anthropic-beta", b"context-management-2025-06-27,interleaved-thinking-2025-05-14")
CLEARING = "clear_thinking_20251015"
TOOLS = ("Bash", "Edit", "Glob", "Grep", "Read", "Write")
DEFAULT_PAUSE_S = 10.0
LEAST_LOSS, LEAST_LOSS_USD = 0.005, 0.01


@dataclass
class Recorded:
    """A session or sub-agent, read and measured."""

    transcript: Transcript
    session: MeasuredSession


@dataclass
class Player:
    """The client: builds each request of a recorded session as Claude Code would send it."""

    recorded: Recorded
    messages: list[JsonObject] = field(default_factory=list)
    began: list[int] = field(default_factory=list)  # the message with which each request began
    changes: int = 0

    def requests(self) -> Iterator[tuple[MeasuredRequest, JsonObject]]:
        for made, request in zip(self.recorded.session.requests, self.recorded.transcript.requests, strict=True):
            if made.is_reset:
                self.messages.clear()
                self.began = [0] * len(self.began)
            if made.is_changed:
                self._change(made)
            self.began.append(len(self.messages))
            self.messages.append({"role": "user", "content": self._input(request)})
            yield made, self._body(request)
            self.messages.append({"role": "assistant", "content": self._answer(made, request)})

    def _change(self, made: MeasuredRequest) -> None:
        """Change the message at which the provider stopped reading."""
        before = self.recorded.session.requests[: made.index]
        place = next((one.index for one in before if one.prompt > made.read + 1024), 0)
        at = self.began[place] if made.read > self.recorded.session.fixed + 1024 else 0
        self.changes += 1
        reminder = f"<system-reminder>\nThe list has changed {self.changes} times.\n</system-reminder>"
        message = self.messages[at]
        self.messages[at] = {**message, "content": [*message["content"], {"type": "text", "text": reminder}]}

    def _input(self, request: AgentRequest) -> list[JsonObject]:
        asked = {
            part["id"] for part in (self.messages[-1]["content"] if self.messages else []) if part["type"] == "tool_use"
        }
        results = [one for one in request.outputs if one.call_id in asked]
        blocks: list[JsonObject] = [
            {"type": "tool_result", "tool_use_id": one.call_id, "content": one.text}
            | ({"is_error": True} if one.failed else {})
            for one in results
        ]
        texts = [*(one.text for one in request.outputs if one.call_id not in asked), *request.user]
        blocks += [{"type": "text", "text": text} for text in texts if text]
        return blocks or [{"type": "text", "text": "Go on."}]

    def _answer(self, made: MeasuredRequest, request: AgentRequest) -> list[JsonObject]:
        blocks: list[JsonObject] = []
        if made.kept_thinking >= 1:
            thought = filler(int(made.kept_thinking), f"thought {made.index}")
            blocks.append({"type": "thinking", "thinking": thought, "signature": f"s{made.index}"})
        if request.said:
            blocks.append({"type": "text", "text": request.said})
        blocks += [call_block(call) for call in request.calls]
        return blocks or [{"type": "text", "text": "Done."}]

    def _body(self, request: AgentRequest) -> JsonObject:
        usage = request.usage
        mark = {"type": "ephemeral"} | ({"ttl": "1h"} if usage and usage.cache_write_1h else {})
        used = {call.name for one in self.recorded.transcript.requests for call in one.calls}
        named = sorted({*used, *(() if self.recorded.transcript.is_sidechain else TOOLS)})
        tools = [{"name": name, "description": "A tool.", "input_schema": {"type": "object"}} for name in named if name]
        fixed = filler(int(self.recorded.session.fixed), "instruction")
        spoken = [at for at, message in enumerate(self.messages) if message["role"] == "user"]
        messages = [marked(message, mark) if at in spoken[-2:] else message for at, message in enumerate(self.messages)]
        return {
            "model": request.model,
            "max_tokens": 32000,
            "thinking": {"type": "adaptive"},
            "context_management": {"edits": [{"type": CLEARING, "keep": "all"}]},
            "tools": tools,
            "system": [{"type": "text", "text": fixed, "cache_control": mark}],
            "messages": messages,
        }


def call_block(call: AgentCall) -> JsonObject:
    try:
        given = decode(call.arguments.encode("utf-8", "replace"))
    except ParseError:
        given = {"text": call.arguments}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": given if isinstance(given, dict) else {}}


def marked(message: JsonObject, mark: JsonObject) -> JsonObject:
    *others, last = message["content"]
    return {**message, "content": [*others, {**last, "cache_control": mark}]}


_FILLERS: dict[tuple[int, str], str] = {}


def filler(wanted: int, what: str) -> str:
    """Return a text of about so many tokens, as the provider counts."""
    key = wanted, what
    if key not in _FILLERS:
        line = f"{what} number {{}} says nothing that anyone would quote.\n"
        each = max(1, round(1.15 * tokens.count(line.format(123))))
        _FILLERS[key] = "".join(line.format(at) for at in range(max(1, wanted // each)))
    return _FILLERS[key]


def without_old_thinking(asked: JsonObject) -> JsonObject:
    """Do what Anthropic's page says: of turns with thinking only the newest that are asked for keep it."""
    edits = asked.get("context_management", {}).get("edits", [])
    keep = next((one["keep"] for one in edits if one["type"] == CLEARING), "all")
    if keep == "all":
        return asked
    turns: list[list[int]] = []
    for at, message in enumerate(asked["messages"]):
        blocks = message["content"]
        if message["role"] == "user" and all(block["type"] != "tool_result" for block in blocks):
            turns.append([])
        elif any(block["type"] == "thinking" for block in blocks):
            (turns or [[]])[-1].append(at)
    thinking = [turn for turn in turns if turn]
    gone = {at for turn in thinking[: max(0, len(thinking) - keep["value"])] for at in turn}
    messages = [
        {**message, "content": [block for block in message["content"] if block["type"] != "thinking"]}
        if at in gone
        else message
        for at, message in enumerate(asked["messages"])
    ]
    return {**asked, "messages": messages}


class Bill:
    """A provider's cache and bill for one session and its sub-agents, by the model of each request."""

    def __init__(self, now: "Clock") -> None:
        self.usd = 0.0
        self._model = ""
        self.provider = CachedProvider(now, self._count, {})

    def _count(self, provider: CachedProvider, blocks: Sequence[Block]) -> Counts:
        # A cache belongs to one model.
        return anthropic(provider, [(self._model, None), *blocks])

    def charge(self, asked: JsonObject, output: float) -> JsonObject:
        self._model = asked["model"]
        self.provider.written = round(output)
        self.provider.prices = prices_of(asked["model"])
        self.provider.bill = 0.0
        said = self.provider.charge(without_old_thinking(asked), is_messages=True)
        self.usd += self.provider.bill
        return said

    @property
    def prompt(self) -> list[str]:
        return self.provider.prompts[-1]


def prices_of(model: str) -> dict[str, float]:
    price = price_of(model)
    plain = price.usd * 1e6
    return {
        "plain": plain,
        "read": plain * price.read,
        "write": plain * 1.25,
        "hour": plain * 2,
        "output": plain * price.output,
    }


NAMES = {"plain": "input", "read": "cached", "write": "cache_write", "hour": "long_write", "output": "output"}


def model_toml(model: str) -> str:
    """Return the settings of a model, with the prices of its provider."""
    prices = prices_of(model)
    priced = "".join(f"{name}_usd_per_million = {prices[key]}\n" for key, name in NAMES.items())
    return f'[models."{model}"]\nprovider = "anthropic-evil"\nmax_context_size = 1_000_000\n{priced}'


@dataclass
class Clock:
    at: float = 0.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Outcome:
    name: str
    version: str
    requests: int = 0
    direct_usd: float = 0.0
    played_usd: float = 0.0
    extra_usd: float = 0.0  # of that
    account_usd: float = 0.0  # what the product says that it saved
    extra_turns: int = 0
    used: set[tuple[str, int]] = field(default_factory=set)
    harmed: set[tuple[str, int]] = field(default_factory=set)
    warm: int = 0  # requests whose prefix the client left as it was while it was cached
    changed: int = 0  # of these, those in which we changed it
    announced: int = 0  # cuts of cached results that the account says
    changes: int = 0  # by the client

    @property
    def saved(self) -> float:
        return 1 - self.played_usd / self.direct_usd if self.direct_usd else 0.0


class World:
    def __init__(self, runtime: Runtime, clock: Clock, outcome: Outcome, shift_s: float) -> None:
        self.runtime = runtime
        self.shift_s = shift_s  # from the recording's time to the clock's
        self.clock = clock
        self.outcome = outcome
        self.direct = Bill(clock)
        self.played = Bill(clock)
        self.output = 0.0

    async def upstream(self, heard: Heard, line: Line) -> None:
        said = self.played.charge(json.loads(heard.body), self.output)
        await line.send(http(json.dumps(said).encode()))

    async def play(self, recorded: Recorded) -> None:
        session = recorded.session
        player = Player(recorded)
        names = session.id.rpartition("/") if session.is_sidechain else (session.id, "", "")
        headers = [BETA, (b"x-claude-code-session-id", names[0].encode())]
        headers += [(b"x-claude-code-agent-id", names[2].encode())] if names[2] else []
        before: tuple[list[str], list[str], int] | None = None
        read_back: set[int] = set()
        for made, asked in player.requests():
            at = made.at + self.shift_s if made.at else self.clock.at + DEFAULT_PAUSE_S
            self.clock.at = max(at, self.clock.at)
            self.output = made.output
            usage = self.direct.charge(asked, made.output)["usage"]
            reads = usage["cache_read_input_tokens"]
            prompt = reads + usage["input_tokens"] + usage["cache_creation_input_tokens"]
            client = self.direct.prompt
            raw = json.dumps(asked).encode()
            async with self.runtime.chat.answer(ChatRequest(LOCAL, Wire.MESSAGES, raw, tuple(headers))) as answer:
                assert answer.status == 200, answer.status
            sent = self.played.prompt
            if before is not None and client[: len(before[0])] == before[0] and reads >= HIT * before[2]:
                self.outcome.warm += 1
                self.outcome.changed += sent[: len(before[1])] != before[1]
            before = client, sent, prompt
            self._judge(made, sent, session.id, read_back)
            self.outcome.requests += 1
        self.outcome.changes += player.changes

    def _judge(self, made: MeasuredRequest, sent: list[str], name: str, read_back: set[int]) -> None:
        """Charge an extra turn if the answer uses a line that its request does not show."""
        shown = "\n".join(sent)
        self.outcome.used |= {(name, use.output) for use in made.uses}
        hidden = {use.output for use in made.uses if use.line not in shown} - read_back
        if not hidden:
            return
        self.outcome.harmed |= {(name, output) for output in hidden}
        read_back |= hidden
        price = price_of(self.played._model)
        prompt = sum(map(counted, sent))
        turn = price.read * prompt + price.output * CALL_TOKENS + price.write * READ_BACK_TOKENS
        self.outcome.extra_turns += 1
        self.outcome.extra_usd += turn * price.usd


async def play_session(parts: Sequence[Recorded], policy: str, clears_thinking: bool) -> Outcome:
    whole = min(parts, key=lambda one: one.session.is_sidechain)
    outcome = Outcome(whole.session.id, whole.session.version)
    clock = Clock(time.time())  # old requests would be deleted from the account
    began_at = min((one.session.requests[0].at for one in parts), default=0.0)
    models = sorted({request.model for one in parts for request in one.transcript.requests})
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as home:
        worlds: list[World] = []

        async def script(heard: Heard, line: Line) -> None:
            await worlds[0].upstream(heard, line)

        async with evil(script) as upstream:
            toml = upstream.toml("anthropic")
            toml += "".join(map(model_toml, models))
            thinking = "true" if clears_thinking else '"auto"'
            toml += f'[sanitizer]\npolicy = "{policy}"\nbudget_ms = 60000\n[cache]\nclear_thinking = {thinking}\n'
            async with running(parse(toml, {}, Path(home)), thread_max_chars=10**9, now=clock) as runtime:
                world = World(runtime, clock, outcome, shift_s=clock.at - began_at)
                worlds.append(world)
                for one in sorted(parts, key=lambda each: each.session.requests[0].at):
                    await world.play(one)
                await runtime.sessions.caught_up()
                metrics = [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]
        outcome.announced = sum(bool(one.account and one.account.cache_lost_tokens) for one in metrics)
        outcome.account_usd = sum(one.account.net_saved_usd or 0.0 for one in metrics if one.account)
    outcome.direct_usd = world.direct.usd
    outcome.played_usd = world.played.usd + outcome.extra_usd
    return outcome


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("scripts/bench played")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--current", action="store_true", help="only versions whose rows of files have a tab")
    parser.add_argument("--most", type=int, default=0)
    parser.add_argument("--policy", default="default")
    parser.add_argument("--clear-thinking", action="store_true")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    outcomes: list[Outcome] = []
    sessions = [one for one in _sessions(given.folders) if not given.current or _is_current(one)]
    random.Random(1).shuffle(sessions)
    for at, parts in enumerate(sessions[: given.most or None]):
        outcomes.append(asyncio.run(play_session(parts, given.policy, given.clear_thinking)))
        print(f"\r{at + 1} of {len(sessions)} ", end="", file=sys.stderr)
    _show(outcomes, time.monotonic() - began)


def _sessions(folders: Sequence[Path]) -> Iterator[list[Recorded]]:
    """Yield each session with its sub-agents; of several copies the longest."""
    longest: dict[str, Recorded] = {}
    for folder in folders:
        for place in find([name_source(folder)]):
            for transcript in load(place):
                if transcript.agent != CLAUDE_CODE:
                    continue
                known = longest.get(transcript.id)
                if known is None or len(transcript.requests) > len(known.transcript.requests):
                    longest[transcript.id] = Recorded(transcript, measure(transcript, place.source))
    whole: dict[str, list[Recorded]] = {}
    for id, one in longest.items():
        whole.setdefault(id.rpartition("/")[0] if one.session.is_sidechain else id, []).append(one)
    yield from (parts for parts in whole.values() if not all(one.session.is_sidechain for one in parts))


def _is_current(parts: Sequence[Recorded]) -> bool:
    return any(numbers_of(one.session.version) >= NEW for one in parts if not one.session.is_sidechain)


def _show(outcomes: Sequence[Outcome], took_s: float) -> None:
    direct = sum(one.direct_usd for one in outcomes)
    played = sum(one.played_usd for one in outcomes)
    used, harmed = (sum(len(getattr(one, name)) for one in outcomes) for name in ("used", "harmed"))
    requests = sum(one.requests for one in outcomes)
    account = sum(one.account_usd for one in outcomes)
    losing = [one for one in outcomes if one.saved <= -LEAST_LOSS and one.played_usd - one.direct_usd >= LEAST_LOSS_USD]
    saved = sorted(one.saved for one in outcomes)
    without_turns = direct - played + sum(one.extra_usd for one in outcomes)
    rows = [
        ("sessions, requests", f"{len(outcomes)}, {requests:,}"),
        ("directly, through the proxy", f"{direct:,.2f} USD, {played:,.2f} USD"),
        ("net saved, median", f"{1 - played / direct:.1%}, {saved[len(saved) // 2]:.1%}"),
        ("extra turns per 100", f"{100 * sum(one.extra_turns for one in outcomes) / requests:.2f}"),
        ("used results harmed", f"{harmed} of {used} ({harmed / max(used, 1):.1%})"),
        ("changes of the client's own", f"{sum(one.changes for one in outcomes)}"),
        ("warm prefixes, changed by us", f"{sum(o.warm for o in outcomes):,}, {sum(o.changed for o in outcomes)}"),
        ("requests that rewrote cached text by a cut that pays", f"{sum(one.announced for one in outcomes)}"),
        ("sessions that lose", f"{len(losing)}"),
        ("bill and account differ by", f"{abs(account - without_turns) / direct:.2%} of the uncut bill"),
    ]
    table(f"Played, {min(o.version for o in outcomes)} to {max(o.version for o in outcomes)}", ("", ""), rows)
    print(f"\n{took_s:.0f} s")
