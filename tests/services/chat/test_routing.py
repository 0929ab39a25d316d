"""A conversation that outgrows its model goes to a larger one, and stays there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.fakes import MemoryFacts
from tests.support.services.store.making import opened

from kimi_proxy.core import json
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.core.config.providers import Model, Provider
from kimi_proxy.core.config.sections import RoutingSettings as Settings
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.accounting import Account
from kimi_proxy.features.chat.context import Composition
from kimi_proxy.features.chat.pipeline import Draft, run_stages
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.metering import Metric
from kimi_proxy.features.models import Models
from kimi_proxy.services.chat.context import TokenCounter
from kimi_proxy.services.chat.models import Routing
from kimi_proxy.services.chat.notes import Notes
from kimi_proxy.services.store.protocols import FactKind
from kimi_proxy.services.store.sqlite.store import SqliteStore

PROVIDERS = {
    "p": Provider(base_url="http://127.0.0.1:1/v1"),
    "q": Provider(base_url="http://127.0.0.1:2/v1"),
    "openai": Provider(base_url="https://api.openai.com/v1"),
    "off": Provider(base_url="http://127.0.0.1:3/v1", enabled=False),
}
KNOWN = {
    "p/small": Model(provider="p", model="kimi-small", max_context_size=1000),
    "p/middle": Model(provider="p", model="kimi-middle", max_context_size=2000),
    "p/large": Model(provider="p", model="Upstream/Kimi-Large", max_context_size=8000),
    "q/other": Model(provider="q", max_context_size=1500),
    "off/other": Model(provider="off", max_context_size=1500),
}


def counted(text: str) -> int:
    return len(text)


class World:
    def __init__(self, routing: Routing, models: Models, store: SqliteStore) -> None:
        self.routing = routing
        self.store = store
        self._models = models

    async def send(self, chars: int, session: str = "ses_1", model: str = "p/small", letter: str = "x") -> Draft:
        """A request of that many tokens, with the four of its message."""
        messages = [{"role": "user", "content": letter * (chars - 4)}]
        request = parse(json.encode({"model": model, "messages": messages}), Wire.CHAT)
        draft = Draft(request, self._models.target(model, Wire.CHAT), Session(session), LOCAL)
        return await run_stages(draft, (self.routing.change,), self._failed)

    def _failed(self, step: str, error: Exception) -> None:
        raise error


@asynccontextmanager
async def world(
    home: Path, settings: Settings | None = None, counting: TokenCounter | None = None, known: dict[str, Model] = KNOWN
) -> AsyncIterator[World]:
    counting = counting or TokenCounter(counted)
    models = Models(PROVIDERS, known)
    async with opened(home) as store:
        scale = store.sessions
        yield World(Routing(settings or Settings(), models, counting, Notes(store.facts), scale), models, store)
    counting.close()


def went(draft: Draft) -> str | None:
    return draft.target.key


async def test_a_model_that_the_user_configured_answers_whatever_its_name(tmp_path: Path):
    """A user's own `small` and `large` never routed: their names are of no one family."""
    known = {
        "small": Model(provider="p", max_context_size=1000),
        "large": Model(provider="p", max_context_size=9000),
        "wide": Model(provider="p", max_context_size=4000),
    }
    async with world(tmp_path, known=known) as w:
        drafts = [await w.send(chars, f"ses_{chars}", model="small") for chars in (899, 950, 3700)]

    assert [went(draft) for draft in drafts] == ["small", "wide", "large"]


async def test_a_model_of_the_table_answers_for_its_family_or_when_it_is_named(tmp_path: Path):
    async with world(tmp_path, known={}) as w:
        later = await w.send(260_000, model="openai/gpt-5.2")
        alone = await w.send(190_000, model="openai/o3")
    named = Settings(fallback_models=("openai/gpt-4.1", "p/gpt-4.1"))
    async with world(tmp_path / "named", named, known={}) as w:
        told = await w.send(190_000, model="openai/o3")
        beside = await w.send(190_000, model="q/o3")

    assert (later.target.model, alone.target.model) == ("gpt-5.4", "o3")
    assert (alone.reasons, told.target.model) == (("no_larger_model",), "gpt-4.1")
    assert (beside.target.provider, beside.target.model) == ("q", "o3")


async def test_from_the_threshold_on_a_request_goes_to_the_smallest_sufficient_model(tmp_path: Path):
    async with world(tmp_path) as w:
        drafts = [await w.send(chars, f"ses_{chars}") for chars in (899, 900, 1799, 1800, 8000)]

    assert [went(draft) for draft in drafts] == ["p/small", "p/middle", "p/middle", "p/large", "p/large"]
    assert drafts[3].target.model == "Upstream/Kimi-Large"
    assert drafts[0].answer_headers == drafts[0].notes == drafts[0].reasons == ()


async def test_a_request_that_certainly_has_room_is_not_counted(tmp_path: Path):
    def count(text: str) -> int:
        raise AssertionError("counted")

    async with world(tmp_path, counting=TokenCounter(count)) as w:
        draft = await w.send(500)

    assert went(draft) == "p/small"


async def test_a_conversation_stays_until_it_has_shrunk_a_good_deal(tmp_path: Path):
    async with world(tmp_path) as w:
        places = [went(await w.send(chars)) for chars in (900, 700, 600, 599, 700, 899, 950, 1900, 1700)]

    assert places == [
        *("p/middle", "p/middle", "p/middle"),
        *("p/small", "p/small", "p/small"),  # below two thirds of the threshold, it is back
        *("p/middle", "p/large", "p/large"),
    ]


async def test_news_are_told_as_news_once(tmp_path: Path):
    async with world(tmp_path) as w:
        first, again = [await w.send(950) for _ in range(2)]

    assert [draft.notes[0].fields["new"] for draft in (first, again)] == [True, False]
    assert first.answer_headers == again.answer_headers == ((b"x-kimi-proxy-model", b"p/middle"),)


async def test_a_provider_that_counts_more_than_we_do_is_believed(tmp_path: Path):
    metric = Metric("req_1", "ses_1", 1.0, "p", "p/small", "chat", 500, 0, (), 1000, input_tokens=600)
    async with world(tmp_path) as w:
        await w.store.sessions.write((), [metric])
        drafts = [await w.send(chars, letter="é") for chars in (740, 760)]
        (note,) = drafts[1].notes

    assert [went(draft) for draft in drafts] == ["p/small", "p/middle"]
    assert note.fields["tokens"] == 912  # a fifth more


async def test_a_restart_changes_nothing(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.send(950)
    async with world(tmp_path) as w:
        known, other = await w.send(700), await w.send(700, "ses_2")
        gone_back = await w.send(100)
        back = await w.send(700)
    async with world(tmp_path) as w:
        still_back = await w.send(700)

    # What certainly has room is not looked at; the next that could be too large is.
    assert [went(each) for each in (known, other, gone_back)] == ["p/middle", "p/small", "p/small"]
    assert {went(back), went(still_back)} == {"p/middle"}


async def test_a_model_that_is_gone_from_the_settings_holds_nobody(tmp_path: Path):
    async with world(tmp_path) as w:
        await w.send(950)
    async with world(tmp_path, known={key: KNOWN[key] for key in ("p/small", "p/large")}) as w:
        drafts = [await w.send(chars) for chars in (700, 950)]

    assert [went(draft) for draft in drafts] == ["p/small", "p/large"]


async def test_without_a_larger_model_the_request_goes_on_and_the_warning_comes_once(tmp_path: Path):
    async with world(tmp_path) as w:
        drafts = [await w.send(chars, model="p/large") for chars in (7500, 7600, 5000, 7500)]

    assert [went(draft) for draft in drafts] == ["p/large"] * 4
    assert [draft.reasons for draft in drafts] == [("no_larger_model",), ("no_larger_model",), (), ("no_larger_model",)]
    assert [len(draft.notes) for draft in drafts] == [1, 0, 0, 1]


async def test_other_providers_are_not_asked(tmp_path: Path):
    known = {key: KNOWN[key] for key in ("p/small", "q/other", "off/other")}
    async with world(tmp_path, known=known) as w:
        draft = await w.send(1000)

    assert (went(draft), draft.reasons) == ("p/small", ("no_larger_model",))


async def test_a_model_that_the_settings_do_not_know_is_left_alone(tmp_path: Path):
    async with world(tmp_path) as w:
        draft = await w.send(5000, model="p/unheard-of")

    assert (draft.target.model, draft.answer_headers, draft.reasons) == ("unheard-of", (), ())


async def test_it_can_be_switched_off_and_the_threshold_moved(tmp_path: Path):
    async with world(tmp_path, Settings(fallback_threshold=0.5)) as w:
        early = await w.send(500)
        w.routing.is_on = False
        off = await w.send(1000)
    async with world(tmp_path / "other", Settings(heavy_duty_fallback=False)) as w:
        never = await w.send(1000)

    assert [went(each) for each in (early, off, never)] == ["p/middle", "p/small", "p/small"]


async def test_pictures_count_though_their_address_is_short(tmp_path: Path):
    content = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]
    body = json.encode({"model": "p/small", "messages": [{"role": "user", "content": content}]})
    async with world(tmp_path) as w:
        seen = await w.send(100)
        draft = replace(seen, request=parse(body, Wire.CHAT))
        done = await run_stages(draft, (w.routing.change,), lambda step, error: None)

    assert len(body) < 900
    assert went(done) == "p/middle"


class SickFacts(MemoryFacts):
    async def get(self, who: Caller, kind: FactKind, keys: object) -> dict[bytes, bytes]:
        raise StoreUnavailable("sick")

    async def delete(self, who: Caller, kind: FactKind, keys: object) -> None:
        raise StoreUnavailable("sick")


async def test_without_a_disk_it_routes_all_the_same(tmp_path: Path):
    counting, models = TokenCounter(counted), Models(PROVIDERS, KNOWN)
    async with opened(tmp_path) as store:
        w = World(Routing(Settings(), models, counting, Notes(SickFacts()), store.sessions), models, store)
        places = [went(await w.send(chars)) for chars in (950, 700)]
    counting.close()

    assert places == ["p/middle", "p/middle"]


async def test_a_provider_that_was_asked_twice_for_one_answer_has_not_counted_more_than_we_do(tmp_path: Path):
    told = Account(tokens_before=500, tokens_after=500, extra_turns=1)
    metric = Metric("req_1", "ses_1", 1.0, "p", "p/small", "chat", 500, 0, (), 1000, input_tokens=1100, account=told)
    async with world(tmp_path) as w:
        await w.store.sessions.write((), [metric])
        draft = await w.send(760, letter="é")

    assert went(draft) == "p/small"


async def test_what_cannot_be_counted_in_time_stays_where_the_conversation_is(tmp_path: Path):
    """After a restart everything is counted anew, and the model that was asked for has no room for it."""

    class Slow(TokenCounter):
        async def composition(self, request: Request) -> Composition:
            raise TimeoutError

    async with world(tmp_path) as w:
        first = await w.send(1900)
    async with world(tmp_path, counting=Slow()) as w:
        again = await w.send(1900)
        with pytest.raises(TimeoutError):
            await w.send(1900, "ses_2")

    assert went(first) == went(again) == "p/large"
    assert again.answer_headers == first.answer_headers
