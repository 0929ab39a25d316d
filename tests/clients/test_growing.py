"""An agent's conversation grows past 80, 85, 90 and 95 % of a small window; what happens is seen at the provider."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.clients.growing import AGENTS, RULES, Agent
from tests.support import model
from tests.support.api.compress import ASKED_FOR_SUMMARY, KINDS, SUMMARY, tokens_in, words
from tests.support.api.proxy_world import Proxy, proxy
from tests.support.api.watching import Watcher, watching
from tests.support.deep import deep, too
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.model import Call, Says

from kimi_proxy.core.chat import Request, Wire, parse

SMALL, LARGE = 5_000, 20_000
SETTINGS = "[sanitizer]\nenabled = false\n"
NO_ROUTING = "[sanitizer.routing]\nheavy_duty_fallback = false\n"


@dataclass
class World:
    p: Proxy
    provider: Evil
    wire: Wire
    agent: Agent
    watcher: Watcher
    headers: list[dict[str, str]] = field(default_factory=list)

    async def until(self, share: float, at_most: int = 60) -> None:
        """Go on until the provider has counted so much of the small window, or for so many turns."""
        for turn in range(at_most):
            self.headers.append(await self.agent.turn("" if self._is_busy else f"Next question, number {turn}?"))
            if tokens_in(self.provider.heard[-1].body, self.wire) >= share * SMALL:
                return

    @property
    def _is_busy(self) -> bool:
        """Whether the model waits for what a tool said."""
        last = self.agent.said[-1] if self.agent.said else {}
        is_result = last.get("role") == "tool" or last.get("type") == "function_call_output"
        return is_result or (last.get("role") == "user" and isinstance(last.get("content"), list))

    @property
    def heard(self) -> list[Request]:
        bodies = [heard.body for heard in self.provider.heard if ASKED_FOR_SUMMARY not in heard.body]
        return [parse(body, self.wire) for body in bodies]


@asynccontextmanager
async def world(home: Path, wire: Wire, settings: str) -> AsyncIterator[World]:
    asked = 0

    async def script(heard: Heard, line: Line) -> None:
        nonlocal asked
        asked += 1
        counted = tokens_in(heard.body, wire)
        call = Call(f"call_{asked}", "read_file", {"path": f"src/part_{asked}.py"})
        says = Says("Read it.", (call,), tokens=(counted, 9)) if asked % 3 else Says("Done.", tokens=(counted, 9))
        says = Says(SUMMARY, tokens=(counted, 9)) if ASKED_FOR_SUMMARY in heard.body else says
        await line.send(http(model.body(wire, says)))

    async with evil(script) as provider:
        name = f"{KINDS[wire]}-evil"
        models = "".join(
            f'[models.{key}]\nprovider = "{name}"\nmodel = "kimi-{key}"\nmax_context_size = {size}\n'
            for key, size in (("small", SMALL), ("large", LARGE))
        )
        async with proxy(home, provider.toml(KINDS[wire]) + models + settings) as p, watching(p.port) as watcher:
            agent = AGENTS[wire](f"http://127.0.0.1:{p.port}")
            async with agent.sdk:
                yield World(p, provider, wire, agent, watcher)


def wires(always: Wire) -> pytest.MarkDecorator:
    """The test in one wire format; in the others with --deep. Each test has another, so that every format is driven."""
    return pytest.mark.parametrize("wire", [wire if wire is always else too(wire) for wire in AGENTS])


def paired(request: Request) -> bool:
    parts = [part for message in request.messages for part in message.parts]
    calls = [part.call_id for part in parts if part.kind == "tool_call"]
    return sorted(calls) == sorted(part.call_id for part in parts if part.kind == "tool_result")


@deep("it fills a window three times; one alert always runs")
@wires(Wire.RESPONSES)
async def test_whoever_watches_is_warned_at_80_90_and_95_percent(tmp_path: Path, wire: Wire):
    # With the rescue, a conversation whose answers need more than 5 % of the window never gets that far.
    async with world(tmp_path, wire, SETTINGS + NO_ROUTING + "[compression]\nrescue = false\n") as here:
        await here.until(0.96)
        await here.watcher.until("context_alert", 3)

    assert [event["level"] for event in here.watcher.said("context_alert")] == ["caution", "warning", "critical"]
    assert all(request.model == "kimi-small" for request in here.heard)


@wires(Wire.MESSAGES)
async def test_with_compression_switched_on_the_window_never_fills(tmp_path: Path, wire: Wire):
    automatic = "[compression]\nautomatic = true\ncooldown_s = 0\nkeep_exchanges = 2\nmax_in_a_row = 1000\n"
    async with world(tmp_path, wire, SETTINGS + NO_ROUTING + automatic) as here:
        await here.until(0.95, at_most=50)

    shares = [tokens_in(request.body, wire) / SMALL for request in here.heard]
    assert len(shares) == 50 and max(shares) < 0.9
    assert all(map(paired, here.heard))
    told = here.watcher.said("compression_event")
    assert len(told) >= 2
    assert all("summary" not in event and isinstance(event["at"], str) for event in told)
    assert SUMMARY in words(here.heard[-1])
    assert all(request.model == "kimi-small" for request in here.heard)


@wires(Wire.RESPONSES)
async def test_above_90_percent_a_larger_model_of_the_same_provider_answers(tmp_path: Path, wire: Wire):
    async with world(tmp_path, wire, SETTINGS) as here:
        await here.until(1.1)
        await here.watcher.until("model_routed")

    for request, headers in zip(here.heard, here.headers, strict=True):
        is_large = tokens_in(request.body, wire) >= 0.9 * SMALL
        assert request.model == ("kimi-large" if is_large else "kimi-small")
        assert headers.get("x-kimi-proxy-model") == ("large" if is_large else None)


@wires(Wire.CHAT)
async def test_buried_instructions_are_repeated_at_the_end(tmp_path: Path, wire: Wire):
    reinjection = "[reinjection]\nenabled = true\n"
    async with world(tmp_path, wire, SETTINGS + NO_ROUTING + reinjection) as here:
        await here.until(0.8)

    last = [part.text for message in here.heard[-1].messages[-1:] for part in message.parts]
    assert RULES in last[-1]
    assert all(map(paired, here.heard))
    assert all(words(request).count(RULES) <= 1 + (wire is Wire.CHAT) for request in here.heard)
    early = [request for request in here.heard if tokens_in(request.body, wire) < 0.4 * SMALL]
    assert all(words(request).count(RULES) == (wire is Wire.CHAT) for request in early)


@wires(Wire.MESSAGES)
async def test_by_hand_what_is_compressed_comes_back_byte_for_byte(tmp_path: Path, wire: Wire):
    compression = "[compression]\nkeep_exchanges = 2\n"
    async with world(tmp_path, wire, SETTINGS + NO_ROUTING + compression) as here:
        await here.until(0.86)
        (session,) = (await here.p.http.get("/api/sessions")).json()["sessions"]
        done = await here.p.http.post(f"/api/compress/{session['id']}", json={})
        await here.until(0, at_most=1)
        compressed = here.heard[-1]
        await here.p.http.post(f"/api/compress/{session['id']}/undo", json={})
        await here.until(0, at_most=1)
        whole = here.heard[-1]

    assert done.status_code == 200, done.text
    assert SUMMARY in words(compressed) and paired(compressed)
    assert tokens_in(compressed.body, wire) < 0.6 * SMALL
    assert SUMMARY not in words(whole) and "call_1:" in words(whole)
    # But for the name of the model, these are the bytes that the library sent.
    before = next(request for request in reversed(here.heard[:-2]))
    assert whole.body[: len(before.body) - 200] == before.body[: len(before.body) - 200]
