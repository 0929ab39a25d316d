"""The model is called what its provider calls it, and the provider is asked to count."""

from collections.abc import Mapping

from kimi_proxy.core.caller import LOCAL
from kimi_proxy.core.chat import Wire, parse
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.features.chat.pipeline import Draft, ask_usage, name_model
from kimi_proxy.features.chat.sessions import Session
from kimi_proxy.features.models import Target


def draft(body: bytes, model: str = "m") -> Draft:
    return Draft(parse(body, Wire.CHAT), Target("p", model), Session("s"), LOCAL)


def providers(include_usage: bool) -> Mapping[str, Provider]:
    return {"p": Provider(base_url="http://x", include_usage=include_usage)}


async def test_a_model_gets_the_name_that_its_provider_knows():
    assert (await name_model(draft(b'{"model":"m"}', "upstream/m"))).request.body == b'{"model":"upstream/m"}'


async def test_a_model_that_has_its_name_is_left_alone():
    asked = draft(b'{"model":"m"}')

    assert await name_model(asked) is asked


async def test_a_stream_is_asked_to_count_and_the_count_is_hidden():
    asked = await ask_usage(providers(True))(draft(b'{"model":"m","stream":true}'))

    assert asked.hides_usage
    assert b'"include_usage":true' in asked.request.body


async def test_a_provider_that_refuses_to_be_asked_is_not():
    asked = draft(b'{"model":"m","stream":true}')

    assert await ask_usage(providers(False))(asked) is asked


async def test_a_client_that_asked_for_itself_sees_what_it_asked_for():
    asked = draft(b'{"model":"m","stream":true,"stream_options":{"include_usage":true}}')

    assert await ask_usage(providers(True))(asked) is asked
