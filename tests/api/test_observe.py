"""While it only observes, kimi-proxy changes nothing, keeps nothing, and counts what it would have saved."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from tests.support import outputs
from tests.support.api.gateway import LONG, serve, toml
from tests.support.api.proxy_world import proxy
from tests.support.api.watching import MODEL, World, completion, models, watching, world
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.evil import answering, evil, http
from tests.support.upstream import scripted

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.json import JsonObject
from kimi_proxy.services.settings import OBSERVE as SWITCH
from kimi_proxy.services.settings import LiveSettings, ObserveMode
from kimi_proxy.services.store.protocols import NEWEST

LOG = outputs.pytest_log(300)
JSON = {"content-type": "application/json"}
OBSERVE = '[sanitizer]\nmode = "observe"\nbudget_ms = 10000\n'
FIRST: list[Item] = [User(LOG.goal)]
READ: list[Item] = [
    *FIRST,
    Assistant("", (Call("call_a1", "bash", {"command": "pytest"}),)),
    Result("call_a1", LOG.text),
]
LATER: list[Item] = [*READ, Assistant("It fails."), User("Why?")]
ANSWER = completion(prompt=9000, cached=0)


async def send(w: World, items: Sequence[Item], session: str = "mine") -> bytes:
    """The body that the client sent."""
    sent = body(Wire.CHAT, items, model="m")
    answer = await w.proxy.http.post("/v1/chat/completions", content=sent, headers={**JSON, "x-session-id": session})
    assert answer.status_code == 200, answer.text
    return sent


async def metrics(w: World, requests: int) -> list[JsonObject]:
    await w.sessions(requests)
    found = (await w.get("/api/sessions/mine/metrics"))["metrics"]
    assert isinstance(found, list)
    return [each for each in found if isinstance(each, dict)]


async def test_requests_leave_byte_for_byte_and_what_they_would_have_saved_is_counted(tmp_path: Path):
    async with world(tmp_path, models(100_000) + OBSERVE, ANSWER) as w:
        sent = [await send(w, items) for items in (FIRST, READ, LATER)]
        noted = await metrics(w, 3)
        savings = await w.get("/api/savings?timezone=UTC")
        kept = await w.proxy.runtime.store.originals.page(LOCAL, NEWEST, 10)
        stats = await w.get("/api/sanitizer/stats")

    assert [heard.body for heard in w.provider.heard] == sent
    assert noted[0]["observed_tokens"] < 0  # the tool that reads back what is cut
    assert noted[1]["observed_tokens"] > 3000
    assert noted[2]["observed_tokens"] == pytest.approx(noted[1]["observed_tokens"], rel=0.1)
    assert all(each["tokens_saved"] == 0 and each["net_saved_usd"] == 0 for each in noted)
    assert noted[1]["observed_usd"] > 0.001
    assert noted[1]["reasons"] == ["observing"]
    periods = savings["periods"]
    assert isinstance(periods, dict)
    assert periods["today"]["observed_usd"] == pytest.approx(sum(float(str(each["observed_usd"])) for each in noted))
    assert list(kept) == []
    assert stats["mode"] == "observe"


async def test_what_is_counted_is_what_acting_saves(tmp_path: Path):
    """Sent to the same provider, by a server that acts and by one that observes."""
    async with world(tmp_path / "a", models(100_000) + "[sanitizer]\nbudget_ms = 10000\n", ANSWER) as w:
        for items in (FIRST, READ):
            await send(w, items)
        acted = await metrics(w, 2)
    async with world(tmp_path / "b", models(100_000) + OBSERVE, ANSWER) as w:
        for items in (FIRST, READ):
            await send(w, items)
        observed = await metrics(w, 2)

    came = int(str(acted[1]["tokens_estimated"])) + int(str(acted[1]["tokens_saved"]))
    share = int(str(acted[1]["tokens_saved"])) / came
    assert observed[1]["tokens_estimated"] == came
    assert int(str(observed[1]["observed_tokens"])) / 9000 == pytest.approx(share, abs=0.01)


async def test_switching_it_on_leaves_warm_conversations_as_they_are(tmp_path: Path):
    async with world(tmp_path, models(100_000) + OBSERVE, ANSWER) as w:
        await send(w, FIRST)
        await send(w, READ)
        changed = await w.proxy.http.patch("/api/settings", json={"sanitizer.observe": False})
        warm = await send(w, LATER)
        await send(w, [User("another task"), *READ[1:]], session="new")

    assert changed.json()["switches"]["sanitizer.observe"] is False
    assert w.provider.heard[2].body == warm
    assert LOG.text not in json.loads(w.provider.heard[3].body)["messages"][2]["content"]


async def test_one_click_turns_it_on_and_is_written_to_the_file(tmp_path: Path):
    file = tmp_path / "config.toml"
    file.write_text(OBSERVE)
    config = parse(OBSERVE, {}, tmp_path).model_copy(update={"file": file})
    mode = ObserveMode(is_on=True)
    done = await LiveSettings(config, {SWITCH: mode}, {}).change(LOCAL, {SWITCH: False})

    assert (done["saved"], mode.is_on) == (True, False)
    assert file.read_text() == OBSERVE.replace('"observe"', '"on"')


async def test_after_a_restart_a_warm_conversation_that_was_observed_stays_as_it_is(tmp_path: Path):
    async with world(tmp_path, models(100_000) + OBSERVE, ANSWER) as w:
        await send(w, FIRST)
        await send(w, READ)
        await metrics(w, 2)
    async with world(tmp_path, models(100_000) + "[sanitizer]\nbudget_ms = 10000\n", ANSWER) as w:
        warm = await send(w, LATER)

    assert w.provider.heard[0].body == warm


ROUTED = f"""
[models."{MODEL}"]
provider = "openai-evil"
max_context_size = 6000
[models."openai-evil/large"]
provider = "openai-evil"
max_context_size = 90000
"""


async def test_routing_and_compression_and_instructions_are_only_observed_too(tmp_path: Path):
    settings = (
        ROUTED + OBSERVE + "[compression]\nautomatic = true\n[reinjection]\nenabled = true\n[memory]\ninject = true\n"
    )
    (tmp_path / "project_memory.json").write_text('{"content": "Prices are in cents.", "updated_at": 1}')
    async with world(tmp_path, settings, ANSWER) as w:
        sent = [await send(w, items) for items in (FIRST, READ, LATER)]
        await metrics(w, 3)
        compressions = await w.get("/api/compress/stats")

    assert [heard.body for heard in w.provider.heard] == sent
    assert compressions["compressions"] == 0


async def test_an_attested_request_would_have_saved_nothing(tmp_path: Path):
    text = "x-anthropic-billing-header: cc_version=2.1; cch=abc12;"
    usage = {"input_tokens": 9000, "output_tokens": 3}
    answer = {"type": "message", "role": "assistant", "content": [], "usage": usage, "model": "m"}
    items = body(Wire.MESSAGES, READ, model="m", system=[{"type": "text", "text": text}])
    async with (
        evil(answering(http(json.dumps(answer).encode()))) as provider,
        proxy(tmp_path, provider.toml("anthropic") + OBSERVE) as p,
    ):
        await p.http.post("/v1/messages", content=items, headers={**JSON, "x-session-id": "mine"})

    assert [heard.body for heard in provider.heard] == [items]


async def test_hooks_leave_outputs_whole_and_keep_nothing(tmp_path: Path):
    async with (
        world(tmp_path, models() + OBSERVE + "[hooks]\nbudget_ms = 10000\n") as w,
        watching(w.proxy.port) as seen,
    ):
        event = {
            "hook_event_name": "PostToolUse",
            "session_id": "s",
            "tool_name": "Bash",
            "tool_input": {"command": "pytest"},
            "tool_response": {"stdout": LOG.text, "stderr": ""},
            "tool_use_id": "toolu_1",
        }
        answer = await w.proxy.http.post("/api/hooks/claude", json=event)
        (counted,) = await seen.until("prune_event")
        kept = await w.proxy.runtime.store.originals.page(LOCAL, NEWEST, 10)

    assert answer.json() == {}
    assert (counted["outcome"], counted["prune_id"]) == ("observed", None)
    assert int(str(counted["tokens_est_after"])) < int(str(counted["tokens_est_before"]))
    assert list(kept) == []


async def test_the_gateway_passes_answers_whole_and_offers_no_tool(tmp_path: Path):
    async with (
        scripted(serve) as upstream,
        proxy(tmp_path, OBSERVE + toml(upstream.port)) as p,
        watching(p.port) as seen,
    ):
        shown = await p.call("s", "read")
        listed = await p.rpc("s", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        async with asyncio.timeout(30):
            while not (events := [one for one in seen.said("gateway_event") if one["outcome"] == "observed"]):
                await seen.take()
        kept = await p.runtime.store.originals.page(LOCAL, NEWEST, 10)

    assert shown == {"content": [{"type": "text", "text": LONG}]}
    assert "recover_text" not in listed.text
    assert int(str(events[0]["chars"])) > 1000
    assert list(kept) == []


async def test_messages_of_other_gateways_come_back_as_they_are(tmp_path: Path):
    async with world(tmp_path, models() + OBSERVE) as w:
        messages = json.loads(body(Wire.CHAT, READ, model=MODEL))["messages"]
        answer = await _compress(w, messages)

    assert answer.json()["messages"] == messages


async def _compress(w: World, messages: object) -> httpx.Response:
    answer = await w.proxy.http.post("/v1/compress", json={"model": MODEL, "messages": messages})
    assert answer.status_code == 200, answer.text
    return answer
