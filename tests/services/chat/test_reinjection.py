"""Buried instructions come once more at the end, and leave no trace in the next request."""

import pytest
from tests.support.conversations import SYSTEM, Assistant, Call, Item, Result, User, request

from kimi_proxy.core import tokens
from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Request, Wire
from kimi_proxy.core.chat.edit import with_system
from kimi_proxy.core.config.providers import Model, Provider
from kimi_proxy.core.config.sections import ReinjectionSettings as Settings
from kimi_proxy.features.chat.context import HEADING
from kimi_proxy.features.chat.pipeline import Draft, run_stages
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Models, Target
from kimi_proxy.services.chat.context import Reinjection, TokenCounter

MODELS = Models({"p": Provider(base_url="http://127.0.0.1:1/v1")}, {"p/m": Model(provider="p", max_context_size=2000)})
TARGET = Target("p", "m", "p/m")
LONG: list[Item] = [
    User("fix it"),
    Assistant("", (Call("c1"), Call("c2"))),
    Result("c1", "x" * 600),
    Result("c2", "y" * 600),
]


async def counts_as_we_do(draft: Draft) -> float:
    return 1.0


async def sent(
    asked: Request, settings: Settings | None = None, models: Models = MODELS, target: Target = TARGET
) -> Draft:
    counting = TokenCounter(len)
    step = Reinjection(settings or Settings(enabled=True), models, counting, counts_as_we_do)
    draft = Draft(asked, target, Session("ses_1"), LOCAL)

    def failed(name: str, error: Exception) -> None:
        raise error

    done = await run_stages(draft, (step.change,), failed)
    counting.close()
    return done


@pytest.mark.parametrize("wire", Wire)
async def test_buried_instructions_stand_at_the_end_again(wire: Wire):
    asked = request(wire, LONG)
    done = await sent(asked)

    last = done.request.messages[-1].parts[-1].text
    assert last == f"{HEADING}\n{SYSTEM}"
    (note,) = done.notes
    assert note.event == "instructions_reinjected"
    assert note.fields["tokens"] == tokens.count(last)
    assert note.fields["distance"] > 1000
    assert done.request.body.startswith(asked.body[: asked.messages[-1].start])


@pytest.mark.parametrize("wire", Wire)
async def test_a_short_conversation_leaves_as_it_came(wire: Wire):
    asked = request(wire, [User("hi")])

    assert (await sent(asked)).request is asked


@pytest.mark.parametrize("wire", Wire)
async def test_it_is_off_unless_somebody_switches_it_on(wire: Wire):
    asked = request(wire, LONG)

    assert (await sent(asked, Settings())).request is asked


async def test_instructions_beyond_the_limit_are_not_repeated():
    asked = request(Wire.CHAT, LONG)
    done = await sent(asked, Settings(enabled=True, max_tokens=10))

    assert (done.request, done.reasons) == (asked, ("instructions_too_long",))


async def test_where_an_answer_is_to_be_gone_on_with_nothing_follows():
    asked = request(Wire.CHAT, [*LONG, Assistant("The bug is")])
    done = await sent(asked)

    assert (done.request, done.reasons) == (asked, ("no_place_for_instructions",))


@pytest.mark.parametrize("wire", [Wire.CHAT, Wire.RESPONSES])
async def test_what_is_repeated_already_is_not_repeated_again(wire: Wire):
    once = await sent(request(wire, LONG))
    again = await sent(once.request)

    assert again.request is once.request


async def test_memory_in_the_instructions_is_not_copied():
    asked = with_system(request(Wire.MESSAGES, LONG), "<mcp-memory>the port is 8000</mcp-memory>")
    done = await sent(asked)

    assert done.request.messages[-1].parts[-1].text == f"{HEADING}\n{SYSTEM}"


async def test_a_conversation_without_instructions_has_none_to_repeat():
    asked = Request(Wire.CHAT, b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 1500 + b'"}]}')

    assert (await sent(asked)).request is asked


@pytest.mark.parametrize(
    ("provider", "model", "reasons"),
    [("openai", "gpt-5.6", ("spoils_prompt_cache",)), ("deepseek", "x", ("spoils_prompt_cache",)), ("openai", "x", ())],
)
async def test_a_cache_that_matches_whole_units_is_not_spoilt(provider: str, model: str, reasons: tuple[str, ...]):
    models = Models(
        {provider: Provider(base_url=f"https://api.{provider}.com/v1")},
        {"m": Model(provider=provider, max_context_size=2000)},
    )
    asked = request(Wire.CHAT, LONG)
    done = await sent(asked, models=models, target=Target(provider, model, "m"))

    assert done.reasons == reasons
    assert (done.request is asked) is bool(reasons)
