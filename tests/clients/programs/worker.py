"""A model that gives an agent a job, call by call, reads back what was cut, and says that it is done."""

import asyncio
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients.programs.job import DONE, ERRAND, Asked, OwnTools, Shell, Step
from tests.support.evil import Heard, Line, http
from tests.support.model import Call, Says, body, events

from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.chat.wires import wire_of_path
from kimi_proxy.core.json import JsonObject

JSON = "application/json"
RECALL = "own_"  # how the ids of calls begin that are not for the agent
# Lines that were cut, or characters: Cline gives results as JSON, whose strings are masked.
MARKER = re.compile(rb"prune_id=(prn_[0-9a-z]{16}) lignes (\d+)-(\d+)|head=(\d+) tail=\d+ id=(msk_[0-9a-z]{16})")
_MARK = re.compile(r',\s*"cache_control":\s*\{[^{}]*\}')

Ending = tuple[str, JsonObject] | None  # the tool by which an agent wants to be told that the work is done


@dataclass(slots=True)
class Worker:
    """`requests` are those of the conversation; side requests, such as for a title, are answered with a few words."""

    shell: Shell
    own_tools: OwnTools = lambda step, folder: None
    steps: tuple[Step, ...] = ERRAND
    folder: Path = Path()  # in which the agent works
    ending: Ending = None
    observed: bytes = b""  # what stands before a result that is told as text
    replies: tuple[str, ...] = ()  # to an agent without tools: what the model says after so many results
    breaks: int = 0  # so many answers of the conversation break off in mid-stream
    events_before_break: int = 4
    recalls: bool = True
    last_step_s: int = 0  # how long the last command takes
    is_at_last_step: asyncio.Event = field(default_factory=asyncio.Event)
    refusals: int = 0  # so many requests with a recall result are refused, because the provider is busy
    requests: list[bytes] = field(default_factory=list)
    recovered: list[str] = field(default_factory=list)

    async def __call__(self, heard: Heard, line: Line) -> None:
        wire = await api_of(heard, line)
        if wire is None:
            return
        is_ours = bool(self.replies) or self.shell("")[0] in parse(heard.body, wire).tool_names
        if self.refusals > 0 and b'"%b' % RECALL.encode() in heard.body:
            self.refusals -= 1
            await line.send(http(b'{"error":{"message":"wait"}}', "429 Too Many Requests", JSON, "retry-after-ms: 50"))
            return
        says = self._says(wire, heard.body) if is_ours else Says("A title")
        if is_ours and self.breaks > 0:
            self.breaks -= 1
            begun = events(wire, Says("I shall print the log and then read it."))[: self.events_before_break]
            await line.stream(*begun, ends=False)
            line.reset()
            return
        await say(wire, says, heard, line)
        if any(call.id == f"call_{len(self.steps) - 1}" for call in says.calls):
            self.is_at_last_step.set()

    def _says(self, wire: Wire, raw: bytes) -> Says:
        self.requests.append(raw)
        at = f"resp_{len(self.requests)}"
        parts = [part for m in parse(raw, wire).messages for part in m.parts if part.kind == "tool_result"]
        ours = [part.text for part in parts if (part.call_id or "").startswith(RECALL)]
        theirs = {part.call_id for part in parts if not (part.call_id or "").startswith(RECALL)}
        done = raw.count(self.observed) if self.observed else len(theirs)
        marker = MARKER.search(raw)
        if self.recalls and marker and not (ours or self.recovered or self.replies):
            start = int(marker[2] or marker[4])
            asked: JsonObject = {"id": (marker[1] or marker[5]).decode(), "start": start, "end": start + 1}
            return Says("Hm. ", (Call(f"{RECALL}1", "recover_text", asked),), id=at)
        self.recovered += ours
        if self.replies:
            return Says(self.replies[min(done, len(self.replies) - 1)], id=at)
        if done < len(self.steps):
            name, given = self._asked(done)
            id = f"call_{done}"
            call = Call(id, name, script=given) if isinstance(given, str) else Call(id, name, given)
            return Says("I run a command.", (call,), id=at)
        return Says("", (Call("call_end", *self.ending),), id=at) if self.ending else Says(DONE, id=at)

    def _asked(self, at: int) -> Asked:
        step = self.steps[at]
        if self.last_step_s and at == len(self.steps) - 1:
            return self.shell(f"python3 -c 'import time; time.sleep({self.last_step_s})'; {step.command}")
        return self.own_tools(step, self.folder) or self.shell(step.command)


async def api_of(heard: Heard, line: Line) -> Wire | None:
    """The API of a request to the model; any other, as for a list of models, is answered here."""
    wire = wire_of_path(heard.target.partition("?")[0])
    if wire is None:
        await line.send(http(b'{"data":[]}'))
    elif not heard.body:  # Codex tries a WebSocket first
        await line.send(http(b"{}", "426 Upgrade Required"))
        return None
    return wire


async def say(wire: Wire, says: Says, heard: Heard, line: Line) -> None:
    """Answer as a stream, if one was asked for."""
    is_stream = json.loads(heard.body).get("stream")
    await (line.stream(*events(wire, says)) if is_stream else line.send(http(body(wire, says))))


def rewritten(requests: list[bytes], key: str) -> int:
    """Return how many messages were repeated in other bytes at their place in a later request.

    A round in which we answer a call ourselves begins as the request of the agent did, and the agent's next request
    goes on from there as well. Marks for the prompt cache move, and are no part of what is cached.
    """
    return _changed([_pieces(raw.decode(), key)[2:] for raw in requests], requests)


def reframed(requests: list[bytes], key: str) -> int:
    """Return how often what stands before or after the messages was repeated in other bytes."""
    return _changed([_pieces(raw.decode(), key)[:2] for raw in requests], requests)


def _changed(pieces: list[list[str]], requests: list[bytes]) -> int:
    count, old = 0, pieces[0]
    for new, raw in zip(pieces, requests, strict=True):
        count += sum(before != after for before, after in zip(old, new[: len(old)], strict=False))
        if b'"%b' % RECALL.encode() not in raw:
            old = new
    return count


def _pieces(text: str, key: str) -> list[str]:
    """Return what stands around the list under `key`, and its items, as they were written."""
    start = re.search(rf'"{key}"\s*:\s*\[', text)
    assert start is not None, text[:300]
    at, found, decoder = start.end(), list[str](), json.JSONDecoder()
    while text[at:].lstrip(" ,\n")[:1] not in ("]", ""):
        at = len(text) - len(text[at:].lstrip(" ,\n"))
        _, end = decoder.raw_decode(text, at)
        found.append(_MARK.sub("", text[at:end]))
        at = end
    return [_MARK.sub("", text[: start.end()]), _MARK.sub("", text[at:]), *found]
