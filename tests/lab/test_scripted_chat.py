"""The scripted model as a provider: streams with counts, and remembers what it has read."""

import json

import httpx
import pytest

from kimi_proxy.core.chat import Wire
from kimi_proxy.lab.demo_day import Script, ScriptedConversation, ScriptedReply, Turn
from kimi_proxy.lab.scripted_provider import ScriptedModel

SCRIPT = Script(
    iter([ScriptedConversation("c", "", Wire.CHAT, "m", "", (Turn("hello", (ScriptedReply("Good day."),)),))]),
)
HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def client() -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=ScriptedModel(SCRIPT, pause_s=0).app())
    return httpx.AsyncClient(transport=transport, base_url="http://model")


async def test_it_answers_in_one_piece():
    async with client() as http:
        chat = (await http.post("/v1/chat/completions", json=HELLO)).json()
        message = (await http.post("/v1/messages", json={**HELLO, "max_tokens": 5})).json()

    assert chat["choices"][0]["message"]["content"] == "Good day."
    assert chat["usage"]["prompt_tokens"] > 0
    assert message["content"] == [{"type": "text", "text": "Good day."}]
    assert message["stop_reason"] == "end_turn"


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_it_streams(path: str):
    async with client() as http:
        answer = await http.post(path, json={**HELLO, "stream": True})

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "Good day." in answer.text


async def test_what_it_has_read_before_counts_as_cached():
    longer = {**HELLO, "messages": [*HELLO["messages"], {"role": "assistant", "content": "Good day."}]}
    async with client() as http:
        first = (await http.post("/v1/chat/completions", json=HELLO)).json()["usage"]
        second = (await http.post("/v1/chat/completions", content=json.dumps(longer))).json()["usage"]

    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert 0 < second["prompt_tokens_details"]["cached_tokens"] < second["prompt_tokens"]
