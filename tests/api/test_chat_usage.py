"""Usage is asked for where the client is silent, and only who asked for it sees it."""

import json
from pathlib import Path

import pytest
from tests.support.api.proxy_world import proxy
from tests.support.core.chat.streams import DONE, STOP, USAGE_ALONE, delta, line, said
from tests.support.evil import evil, streaming

JSON = {"content-type": "application/json"}
ALONE = line(USAGE_ALONE)
BESIDE = line(delta({}, usage=USAGE_ALONE["usage"]))
ON_CONTENT = line(delta({"content": "hi"}, usage=USAGE_ALONE["usage"]))


@pytest.mark.parametrize("told", [ALONE, BESIDE, ON_CONTENT], ids=["no choices", "an empty delta", "on content"])
@pytest.mark.parametrize("asked", [None, True, False])
async def test_the_client_sees_what_it_asked_for_and_we_see_all(told: str, asked: bool | None, tmp_path: Path):
    events = [piece.encode() for piece in (said("hi"), STOP, told, DONE)]
    options = {} if asked is None else {"stream_options": {"include_usage": asked}}
    async with evil(streaming(*events)) as provider, proxy(tmp_path, provider.toml()) as p:
        response = await p.http.post("/v1/chat/completions", json={"model": "m", "stream": True, **options})
        counted = p.runtime.metrics.text().decode()

    is_hidden = asked is None and told == ALONE
    assert response.content == b"".join(event for event in events if not (is_hidden and event == told.encode()))
    sent = json.loads(provider.heard[0].body)
    assert sent["stream_options"] == {"include_usage": asked is not False}
    assert 'kimi_proxy_chat_tokens_total{kind="input",provider="openai-evil"} 120.0' in counted


async def test_a_provider_may_be_spared_the_question(tmp_path: Path):
    script = streaming(ALONE.encode(), DONE.encode())
    async with evil(script) as provider, proxy(tmp_path, provider.toml(include_usage=False)) as p:
        response = await p.http.post("/v1/chat/completions", content=b'{"model":"m", "stream":true}', headers=JSON)

    assert provider.heard[0].body == b'{"model":"m", "stream":true}'
    assert response.text == ALONE + DONE
