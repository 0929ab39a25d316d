"""`/v1/compress` as the guardrails of other gateways call it, and the same as a Python function."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy
from tests.support.evil import answering, evil, http
from tests.support.fakes import MemoryFacts, MemoryOriginals

import kimi_proxy
from kimi_proxy.core import chat
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.prune import Origin
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.sanitizer.shorten import Task, shorten
from kimi_proxy.services.chat.facts import ChatFacts
from kimi_proxy.services.chat.messages import Messages, ShortenedMessages
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.chat.requests import LocalSessions
from kimi_proxy.services.recover import Recovery
from kimi_proxy.services.store.protocols import FactKind

LOG = "\n".join(f"2026-01-01 12:00:{n % 60:02} INFO item {n} of batch {n % 17} was stored" for n in range(400))
CALL = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "cat app.log"}'}}
MESSAGES: list[JsonValue] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": "what happened to batch 3?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": LOG},
]
PATIENT = "[sanitizer]\nbudget_ms = 60000\n"


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    shorten(Task(LOG[:5000], "", Origin("bash"), True, 100, 200, b"seed"))


async def test_tool_results_are_cut_counted_and_read_back(tmp_path: Path):
    async with proxy(tmp_path, PATIENT) as p:
        body: JsonObject = {"model": "gpt-x", "messages": MESSAGES}
        first = (await p.http.post("/v1/compress", json=body)).json()
        again = (await p.http.post("/v1/compress", json=body)).json()
        (hashed,) = first["ccr_hashes"]
        read = await p.http.get(f"/v1/retrieve/{hashed}")

    assert first["messages"][:3] == MESSAGES[:3]
    shown = first["messages"][3]["content"]
    assert len(shown) < len(LOG) / 2
    assert f"hash={hashed}" in shown
    assert again["messages"] == first["messages"]
    assert first["tokens_before"] - first["tokens_after"] == first["tokens_saved"] > 1000
    assert read.json() == {"hash": hashed, "original_content": LOG}


@pytest.mark.parametrize("place", ["session_id", "model", "content", "tool_call_id"])
async def test_half_a_surrogate_pair_anywhere_is_no_error_of_ours(tmp_path: Path, place: str):
    message = {"role": "tool", "tool_call_id": "call_1", "content": "x"}
    body: JsonObject = {"model": "m", "session_id": "s", "messages": [{**message, place: "\ud800"}], place: "\ud800"}
    async with proxy(tmp_path, PATIENT) as p:
        headers = {"content-type": "application/json"}
        answer = await p.http.post("/v1/compress", content=json.dumps(body).encode(), headers=headers)

    assert answer.status_code == 200


async def test_messages_without_long_results_come_back_as_they_were(tmp_path: Path):
    async with proxy(tmp_path, PATIENT) as p:
        answer = (await p.http.post("/v1/compress", json={"messages": MESSAGES[:2]})).json()

    assert answer["messages"] == MESSAGES[:2]
    assert (answer["tokens_saved"], answer["ccr_hashes"]) == (0, [])


async def test_a_webhook_gets_a_verdict_and_the_whole_request(tmp_path: Path):
    request: JsonObject = {"model": "gpt-x", "temperature": 0, "messages": MESSAGES}
    event: JsonObject = {"eventType": "beforeRequestHook", "request": {"json": request, "text": ""}, "response": {}}
    async with proxy(tmp_path, PATIENT) as p:
        answer = (await p.http.post("/v1/compress", json=event)).json()
    changed = answer["transformedData"]["request"]["json"]

    assert answer["verdict"] is True
    assert {**changed, "messages": MESSAGES} == request
    assert len(json.dumps(changed)) < len(json.dumps(request)) / 2


@pytest.mark.parametrize("body", [{}, {"messages": "x"}, {"messages": [1]}])
async def test_what_is_no_list_of_messages_is_refused(body: JsonObject, tmp_path: Path):
    async with proxy(tmp_path, PATIENT) as p:
        assert (await p.http.post("/v1/compress", json=body)).status_code == 400


@pytest.mark.parametrize("hashed", ["0" * 20, "x", "f" * 20, "prn_0123456789abcdef"])
async def test_a_hash_that_was_never_given_out_reads_nothing(hashed: str, tmp_path: Path):
    async with proxy(tmp_path, PATIENT) as p:
        assert (await p.http.get(f"/v1/retrieve/{hashed}")).status_code == 404


async def test_what_a_chat_session_kept_is_read_only_after_it_was_handed_over(tmp_path: Path):
    asked: JsonObject = {"model": "gpt-x", "messages": MESSAGES}
    async with evil(answering(http(b'{"choices":[]}'))) as provider, proxy(tmp_path, provider.toml() + PATIENT) as p:
        sent = await p.http.post("/v1/chat/completions", json=asked, headers={"x-session-id": "s"})
        (mask,) = (await p.http.get("/api/mask")).json()["masks"]
        digits = "0123456789abcdefghjkmnpqrstvwxyz"
        number = sum(digits.index(digit) << 5 * at for at, digit in enumerate(reversed(mask["id"][4:])))
        before = await p.http.get(f"/v1/retrieve/{number:020x}")
        shown = (await p.http.post("/v1/compress", json={**asked, "session_id": "s"})).json()
        (hashed,) = shown["ccr_hashes"]
        after = await p.http.get(f"/v1/retrieve/{hashed}")

    assert sent.status_code == 200
    assert mask["id"] in shown["messages"][3]["content"]
    assert (before.status_code, after.status_code) == (404, 200)
    assert (hashed, after.json()["original_content"]) == (f"{number:020x}", LOG)


async def test_a_name_that_cannot_be_kept_is_not_given_out(tmp_path: Path):
    async def cut(draft: Draft) -> Draft:
        request = chat.parse(draft.request.body.replace(b"INFO", b"prn_0123456789abcdef"), Wire.CHAT)
        return replace(draft, request=request)

    class FullFacts(MemoryFacts):
        async def get(self, who: Caller, kind: FactKind, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
            raise StoreUnavailable("the disk is full")

    async def shortened(facts: MemoryFacts) -> ShortenedMessages:
        stage = Messages(
            (cut,),
            LocalSessions().find,
            Recovery(MemoryOriginals()),
            ChatFacts(Notes(facts)),
            lambda stage, error: None,
        )
        return await stage.shorten(LOCAL, MESSAGES)

    done, again = await shortened(MemoryFacts()), await shortened(FullFacts())

    assert len(done.hashes) == 1
    assert (again.messages, again.hashes, again.warnings) == (MESSAGES, (), ("recovery_unavailable",))


async def test_the_python_function_does_the_same(tmp_path: Path):
    (tmp_path / "config.toml").write_text(PATIENT)
    env = {**os.environ, "KIMI_PROXY_HOME": str(tmp_path), "KIMI_PROXY_CONFIG": str(tmp_path / "config.toml")}
    messages = [one for one in MESSAGES if isinstance(one, dict)]
    done = await kimi_proxy.acompress(messages, session="s", env=env)

    assert done.messages[:3] == MESSAGES[:3]
    assert done.tokens_after < done.tokens_before / 2
    assert len(done.hashes) == 1
    async with proxy(tmp_path, PATIENT) as p:
        assert (await p.http.get(f"/v1/retrieve/{done.hashes[0]}")).json()["original_content"] == LOG
