"""A conversation recorded on its way through the proxy, and played again."""

import json
from pathlib import Path

from tests.support.api.watching import MODEL, models, world

from kimi_proxy.core.config import parse
from kimi_proxy.features.recording import Recording, read
from kimi_proxy.lab.replay import conversations, play

KEY = "sk-canary-0123456789"


def recorded(path: Path) -> Recording:
    with path.open("rb") as lines:
        return read(lines)


async def test_what_was_asked_is_on_disk_with_its_count_and_without_a_key(tmp_path: Path):
    home = tmp_path / "home"
    async with world(home, f"{models()}\n[record]\nenabled = true\n") as w:
        for words in (("hello",), ("hello", "so it is", "and?")):
            said = [{"role": "assistant" if at % 2 else "user", "content": word} for at, word in enumerate(words)]
            headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
            content = json.dumps({"model": MODEL, "messages": said}).encode()
            answer = await w.proxy.http.post("/v1/chat/completions", content=content, headers=headers)
            assert answer.status_code == 200
        received = [heard.body for heard in w.provider.heard]

    (path,) = (home / "recordings").glob("*.jsonl")
    assert KEY.encode() not in path.read_bytes()
    recording = recorded(path)
    assert recording.head.model == MODEL
    # The provider calls its model otherwise; all else is as it was received.
    assert [json.loads(taken.body)["messages"] for taken in recording.requests] == [
        json.loads(raw)["messages"] for raw in received
    ]
    assert [taken.usage.input_tokens for taken in recording.requests if taken.usage] == [900, 900]

    (conversation,) = conversations(path)
    off = play(conversation, parse("", {}, tmp_path))[0]
    assert (off.requests, off.figures.output) == (2, 14)


async def test_nothing_is_recorded_unless_somebody_says_so(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.ask("hello")

    assert not (tmp_path / "recordings").exists()
