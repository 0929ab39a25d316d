"""What all steps together add to a request that has not changed since the last turn, and each of them alone."""

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import sanitizer
from timing import median, p95, table

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.chat.edit import with_system
from kimi_proxy.core.config import Config
from kimi_proxy.core.config import parse as settings
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.tokens import count
from kimi_proxy.features.chat.context import tokens_of
from kimi_proxy.features.chat.pipeline import Draft, name_of, run_stages
from kimi_proxy.features.chat.sessions import LOCAL_IDS, session_of

SIZES = (100_000, 1_000_000)
TURNS = 40
SHARE = 0.94  # of the window that is filled
LIMITS_MS = {100_000: 5, 1_000_000: 40}
RULES = "Be brief. Touch no file outside of src. " * 10

# Everything is on, and the window is such that a request is counted, goes to a larger model and has its instructions
# repeated; or its history was compressed, and the summary stands in its place.
TOML = """
[providers.p]
type = "{type}"
base_url = "http://127.0.0.1:9/v1"
[models."p/small"]
provider = "p"
max_context_size = {small}
[models."p/large"]
provider = "p"
max_context_size = {large}
[memory]
inject = true
[reinjection]
enabled = true
[compression]
automatic = true
ask_provider = false
threshold_percentage = {threshold}
"""
WHOLE, COMPRESSED = 100, 85  # shares of the window from which a history is compressed; it fills less, or more


def main() -> None:
    rows = [asyncio.run(_row(wire, size, at)) for at in (WHOLE, COMPRESSED) for wire in Wire for size in SIZES]
    head = ("history", "API", "bytes", "best ms", "median ms", "p95 ms", "limit ms", "each step", "what happened")
    table(f"All steps, {TURNS} requests that say what the one before them said", head, rows)


async def _row(wire: Wire, size: int, threshold: int) -> Sequence[object]:
    said = _conversation(wire, size)
    with tempfile.TemporaryDirectory() as folder:
        home, body = Path(folder), _body(wire, said)
        async with running(_config(wire, 10 * size, home, WHOLE)) as runtime:
            await runtime.project_memory.save(LOCAL, "We write tabs.")
            await _once(runtime, wire, _body(wire, said[:1]))  # the session begins
            done, _ = await _once(runtime, wire, body)
            tokens = tokens_of(done.request, count)
        async with running(_config(wire, round(tokens / SHARE), home, threshold)) as runtime:
            for _ in range(3):  # all is decided, written and remembered
                done, _ = await _once(runtime, wire, body)
            taken = [(await _once(runtime, wire, body))[1] for _ in range(TURNS)]
            alone = await _alone(runtime, wire, body)
    shares = ", ".join(f"{name} {ms:.1f}" for name, ms in alone.items())
    events = " ".join(note.event for note in done.notes)
    times = (f"{each:.1f}" for each in (min(taken), median(taken), p95(taken)))
    history = "compressed" if done.compression else "whole"
    return (history, wire.value, f"{len(body):,}", *times, LIMITS_MS[size], shares, events)


def _config(wire: Wire, window: int, home: Path, threshold: int) -> Config:
    kind = "anthropic" if wire is Wire.MESSAGES else "openai"
    return settings(TOML.format(type=kind, small=window, large=4 * window, threshold=threshold), {}, home)


def _conversation(wire: Wire, size: int) -> list[JsonValue]:
    rng = random.Random(size)
    said: list[JsonValue] = [sanitizer.user(wire, sanitizer.GOALS[0])]
    turn = written = 0
    while written < size:
        name, arguments, text = sanitizer.output(rng, turn)
        said += sanitizer.called(wire, f"call_{turn:04}", name, arguments, text[: size // 8])
        written += min(len(text), size // 8)
        turn += 1
    return said


def _body(wire: Wire, said: Sequence[JsonValue]) -> bytes:
    """As a client writes it, with instructions that can be buried."""
    return with_system(parse(sanitizer.body(wire, said), wire), RULES).body


async def _once(runtime: Runtime, wire: Wire, body: bytes) -> tuple[Draft, float]:
    draft = _draft(runtime, wire, body)
    began = time.perf_counter()
    done = await run_stages(draft, runtime.chat.stages, _failed)
    return done, (time.perf_counter() - began) * 1000


async def _alone(runtime: Runtime, wire: Wire, body: bytes) -> dict[str, float]:
    """Each stage's share, in their order."""
    taken: dict[str, list[float]] = {}
    for _ in range(TURNS // 2):
        draft = _draft(runtime, wire, body)
        for stage in runtime.chat.stages:
            began = time.perf_counter()
            draft = await run_stages(draft, (stage,), _failed)
            taken.setdefault(name_of(stage), []).append((time.perf_counter() - began) * 1000)
    return {name: median(values) for name, values in taken.items()}


def _draft(runtime: Runtime, wire: Wire, body: bytes) -> Draft:
    """As a client's next request: nothing of it has been read yet."""
    request = parse(body + b" " * next(_numbers), wire)
    target = runtime.chat.models.target("p/small", wire)
    return Draft(request, target, session_of(request, {}, target.provider, LOCAL_IDS), LOCAL, request)


_numbers = itertools.count(1)  # no two requests are the same bytes


def _failed(step: str, error: Exception) -> None:
    raise error
