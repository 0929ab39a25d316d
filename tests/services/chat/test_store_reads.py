"""How often a request waits for the store before it leaves: what is needed of it is read once, and not again."""

import time
from pathlib import Path

from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import Heard, Line, evil, http
from tests.support.model import Says
from tests.support.model import body as answer_body

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.services.chat.observers import ChatObserver
from kimi_proxy.services.chat.requests import ChatRequest

LOG = outputs.pytest_log(300).text
CUT: list[Item] = [User("Why does it fail?"), Assistant("", (Call("c0", "bash"),)), Result("c0", LOG)]


class StoreCalls(ChatObserver):
    """How often each request waited for the store, until it left."""

    wants_timings = True

    def __init__(self) -> None:
        self.calls: list[int] = []

    def on_start(self, received: Draft, outgoing: Draft) -> None:
        parts = received.timings.parts if received.timings else []
        self.calls.append(sum(part.name == "store" for part in parts))


async def answers(heard: Heard, line: Line) -> None:
    await line.send(http(answer_body(Wire.CHAT, Says("So."))))


async def ask(runtime: Runtime, items: list[Item], session: str) -> None:
    named = ((b"x-session-id", session.encode()),) if session else ()
    asked = ChatRequest(LOCAL, Wire.CHAT, body(Wire.CHAT, items, ("bash", "read")), named)
    async with runtime.chat.answer(asked) as answer:
        assert [piece async for piece in answer.pieces()]
    await runtime.sessions.caught_up()


def longer(turns: int) -> list[Item]:
    """The conversation after some more calls, whose results are too short to be cut."""
    items = list(CUT)
    for number in range(1, turns):
        items += [Assistant(f"I look at {number}.", (Call(f"c{number}", "read"),)), Result(f"c{number}", "ok")]
    return items


async def test_a_first_request_and_one_that_goes_on_wait_for_no_read(tmp_path: Path):
    seen = StoreCalls()
    async with evil(answers) as provider:
        toml = f"{provider.toml()}[sanitizer]\nbudget_ms = 60_000\n"
        async with running(parse(toml, {}, tmp_path), observers=[seen], thread_max_chars=10**9) as runtime:
            for session in ("", "named"):
                for items in ([*CUT[:1]], longer(1), longer(2), longer(3)):
                    await ask(runtime, items, session)
        assert b"prn_" in provider.heard[-1].body

    first, cuts, *running_on = seen.calls[:4]
    assert (first, running_on) == (0, [0, 0])
    assert cuts <= 3, "an original, a decision, and the originals of what was cut before"
    first, cuts, *running_on = seen.calls[4:]
    assert (first, running_on) == (0, [0, 0])


async def test_after_a_restart_each_table_is_read_once(tmp_path: Path):
    async with evil(answers) as provider:
        toml = f"{provider.toml()}[sanitizer]\nbudget_ms = 60_000\n"
        async with running(parse(toml, {}, tmp_path), thread_max_chars=10**9) as runtime:
            for session in ("", "named"):
                for items in ([*CUT[:1]], longer(1), longer(2)):
                    await ask(runtime, items, session)
        seen = StoreCalls()
        async with running(parse(toml, {}, tmp_path), observers=[seen], thread_max_chars=10**9) as runtime:
            began = time.monotonic()
            for session in ("", "named"):
                for items in (longer(3), longer(4)):
                    await ask(runtime, items, session)
            took_s = time.monotonic() - began

    if took_s < 50:  # what was read is good for a minute
        assert seen.calls == [5, 0, 4, 0], "its session, its account, its notes, its cuts, and their originals"
