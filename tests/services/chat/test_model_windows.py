"""A window that is not known is asked for once, after the model has answered, and reported once if it stays unknown."""

import asyncio
from pathlib import Path

import pytest

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.chat.reply import ReplyFacts
from kimi_proxy.core.config import parse as settings
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.chat.pipeline import Draft
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.proxy.headers import UpstreamRequest
from kimi_proxy.services.chat.models import ModelWindows
from kimi_proxy.services.chat.relay import Exchange

TOML = '[providers.mine]\nbase_url = "https://llm.example/v1"\n[providers.ollama]\n'
LISTED: JsonObject = {"data": [{"id": "new", "context_length": 64_000}, {"id": "llama3.1:8b", "max_model_len": 8192}]}


class World:
    def __init__(self, listing: JsonValue = LISTED) -> None:
        self.models = Models.of(settings(TOML, {"ANTHROPIC_API_KEY": "k"}, Path("home")))
        self.listing = listing
        self.asked: list[tuple[str, tuple[tuple[bytes, bytes], ...]]] = []
        self.events: list[tuple[str, JsonObject]] = []
        self.windows = ModelWindows(
            self.models, self.list_models, lambda who, name, it: self.events.append((name, dict(it)))
        )

    async def list_models(self, provider: str, question: UpstreamRequest) -> JsonValue:
        self.asked.append((provider, question.headers))
        return self.listing

    async def answered(self, target: Target, status: int = 200) -> None:
        request = parse(b'{"model": "m", "messages": []}', Wire.CHAT)
        draft = Draft(request, target, Session("ses_1"), LOCAL, headers=((b"authorization", b"Bearer own"),))
        self.windows.on_end(Exchange(draft, status, "ok", ReplyFacts(), 0.1, 0.1))
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_providers_own_list_gives_the_window_of_a_model_that_the_table_lacks():
    w, target = World(), Target("mine", "new")
    await w.answered(target)
    await w.answered(target)

    assert w.asked == [("mine", ((b"authorization", b"Bearer own"),))]
    assert (w.models.window(target), w.windows.unknown_windows(LOCAL), w.events) == (64_000, [], [])


async def test_a_model_that_stays_unknown_is_reported_once_with_the_lines_to_paste(caplog: pytest.LogCaptureFixture):
    w, target = World(), Target("mine", "mystery")
    await w.answered(target)
    await w.answered(target)

    lines = '[models."mystery"]\nprovider = "mine"\nmax_context_size = 131072  # replace it by the model\'s own\n'
    unknown = {"provider": "mine", "model": "mystery", "lines": lines}
    assert (len(w.asked), w.events, w.windows.unknown_windows(LOCAL)) == (1, [("model_unknown", unknown)], [unknown])
    assert [record.message for record in caplog.records] == [
        "unknown context window: paste these lines into config.toml"
    ]


async def test_what_the_table_or_the_file_knows_is_not_asked_for():
    w = World()
    await w.answered(Target("anthropic", "claude-opus-5-5"))

    assert w.asked == []


async def test_a_local_server_has_the_last_word_on_the_window_it_was_started_with():
    w, target = World(), Target("ollama", "llama3.1:8b")
    assert w.models.window(target) == 128_000
    await w.answered(target)

    assert w.models.window(target) == 8192


async def test_a_model_that_did_not_answer_is_not_asked_about():
    w = World()
    await w.answered(Target("mine", "new"), status=404)

    assert w.asked == []


async def test_a_list_that_cannot_be_read_leaves_the_table_in_force():
    w, target = World(None), Target("ollama", "llama3.1:8b")
    await w.answered(target)

    assert (w.models.window(target), w.windows.unknown_windows(LOCAL)) == (128_000, [])
