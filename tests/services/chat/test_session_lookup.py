"""A client that goes on from an answer by its id stays in one session, with one tool and an account of its own size."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support import outputs
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import Evil, Heard, Line, evil, http
from tests.support.fakes import MemoryFacts
from tests.support.model import Says
from tests.support.model import body as answer_body
from tests.support.processes import until

from kimi_proxy.assembly.runtime import Runtime, running
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.metering import Metric
from kimi_proxy.services.chat.requests import ChatRequest
from kimi_proxy.services.chat.session_lookup import SessionsByAnswer
from kimi_proxy.services.store.protocols import FactKind

LOG = outputs.pytest_log(300)


in_process = partial(running, thread_max_chars=10**9)


@dataclass(slots=True)
class Keeping:
    """A provider that keeps conversations: it counts all of one, of which only the end comes."""

    requests: list[dict[str, object]] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)

    async def __call__(self, heard: Heard, line: Line) -> None:
        asked = json.loads(heard.body)
        self.requests.append(asked)
        id = f"resp_{len(self.requests)}"
        read = self.tokens.get(asked.get("previous_response_id") or "", 0) + len(heard.body) // 4
        self.tokens[id] = read
        await line.send(http(answer_body(Wire.RESPONSES, Says("So.", tokens=(read, 5), id=id))))


async def ask(runtime: Runtime, items: Sequence[Item], after: str | None = None) -> str:
    """Return the id of the answer."""
    more = {"previous_response_id": after} if after else {}
    async with runtime.chat.answer(ChatRequest(LOCAL, Wire.RESPONSES, body(Wire.RESPONSES, items, **more))) as answer:
        rest = [piece async for piece in answer.rest] if answer.rest else []
        return str(json.loads(answer.body + b"".join(rest))["id"])


async def noted(runtime: Runtime) -> list[Metric]:
    return [metric async for page in runtime.sessions.metrics(LOCAL, None) for metric in page]


def settings(provider: Evil) -> str:
    return f"{provider.toml()}[sanitizer]\nbudget_ms = 60000\n"


async def test_two_conversations_of_four_turns_are_two_sessions_also_after_a_restart(tmp_path: Path):
    async with evil(Keeping()) as provider:
        last: dict[str, str] = {}
        for turns in (("one", "go on"), ("go on", "go on")):
            async with in_process(parse(settings(provider), {}, tmp_path)) as runtime:
                for turn in turns:
                    for who in ("first question", "second question"):
                        words = who if turn == "one" else turn
                        last[who] = await ask(runtime, [User(words)], last.get(who))
                metrics = await noted(runtime)

    assert [metric.session for metric in metrics] == [metrics[0].session, metrics[1].session] * 4
    assert len({metric.session for metric in metrics}) == 2


async def test_clients_that_go_on_from_answers_that_are_not_known_share_no_session(tmp_path: Path):
    async with (
        evil(Keeping()) as provider,
        in_process(parse(settings(provider), {}, tmp_path)) as runtime,
    ):
        for known in ("resp_a", "resp_b", "resp_c"):
            await ask(runtime, [User("go on")], known)
        metrics = await noted(runtime)

    assert len({metric.session for metric in metrics}) == 3


async def test_our_tool_is_in_every_turn_and_what_was_cut_is_not_counted_many_times(tmp_path: Path):
    keeping = Keeping()
    async with (
        evil(keeping) as provider,
        in_process(parse(settings(provider), {}, tmp_path)) as runtime,
    ):
        id = await ask(runtime, [User(LOG.goal)])
        id = await ask(runtime, [Assistant("", (Call("call_a1"),)), Result("call_a1", LOG.text)], id)
        for _ in range(3):
            id = await ask(runtime, [User("go on")], id)
        metrics = await noted(runtime)

    offered = [[tool["name"] for tool in asked["tools"]] for asked in keeping.requests]  # type: ignore[attr-defined]
    assert offered == [["bash", "read_file", "recover_text"]] * 5
    accounts = [metric.account for metric in metrics if metric.account]
    cut = accounts[1].tokens_before - accounts[1].tokens_after
    assert 0 < cut < len(LOG.text)
    # The tool is ours, and costs a little; the conversation itself is counted once.
    assert [abs(account.tokens_before - account.tokens_after) < 200 for account in accounts[2:]] == [True] * 3


class CountedFacts(MemoryFacts):
    written = 0

    async def put_if_absent(
        self, who: Caller, kind: FactKind, facts: Mapping[bytes, bytes], session: str | Mapping[bytes, str] = ""
    ) -> Mapping[bytes, bytes]:
        self.written += 1
        return await super().put_if_absent(who, kind, facts, session)


async def test_what_leads_to_a_session_is_written_together_and_not_lost_by_a_stop():
    stored = CountedFacts()
    sessions = SessionsByAnswer(stored)
    for key in (b"began", b"said"):
        sessions.put(LOCAL, key, Session("s-1", "a name", "", beginning="b"))
    await asyncio.sleep(0)
    assert stored.written == 0  # while the request goes on
    await sessions.close()

    assert stored.written == 1
    assert await SessionsByAnswer(stored).get(LOCAL, b"said") == Session("s-1", "a name", "", beginning="b")


async def test_servers_that_share_a_store_write_at_once_what_leads_to_a_session():
    stored = CountedFacts()
    sessions = SessionsByAnswer(stored, is_shared=True)
    sessions.put(LOCAL, b"said", Session("s-1"))
    await until(lambda: stored.written == 1)
    await sessions.close()
