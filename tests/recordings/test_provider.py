"""The model of a provider: what it reads from its cache, by the rules that providers publish."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.recordings.provider import CachingProvider, PromptBlock

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import Usage


def block(text: str, is_marked: bool = False) -> PromptBlock:
    """A character is a token."""
    return PromptBlock(text, len(text), is_marked)


def openai() -> CachingProvider:
    return CachingProvider(Wire.CHAT, len)


def anthropic() -> CachingProvider:
    return CachingProvider(Wire.MESSAGES, len)


SYSTEM, QUESTION, ANSWER = block("s" * 2000), block("q" * 500), block("a" * 300)


def test_the_first_request_finds_nothing():
    assert openai().ask([SYSTEM, QUESTION], 7, 0.0) == Usage(2500, 7, 0, 0)


def test_the_next_one_finds_what_it_repeats_in_steps():
    provider = openai()
    provider.ask([SYSTEM, QUESTION], 7, 0.0)

    assert provider.ask([SYSTEM, QUESTION, ANSWER], 7, 60.0) == Usage(2800, 7, 2500 // 128 * 128, 0)


def test_half_a_block_is_found_again_where_it_is_the_same():
    provider = openai()
    provider.ask([SYSTEM, block("q" * 1000)], 7, 0.0)

    assert provider.ask([SYSTEM, block("q" * 600 + "x" * 400)], 7, 1.0).cached_tokens == 2600 // 128 * 128


def test_a_change_at_the_beginning_loses_all_of_it():
    provider = openai()
    provider.ask([SYSTEM, QUESTION], 7, 0.0)

    assert provider.ask([block("t" * 10), SYSTEM, QUESTION], 7, 1.0).cached_tokens == 0


@pytest.mark.parametrize("provider", [openai(), anthropic()])
def test_a_short_request_is_not_kept(provider: CachingProvider):
    short = block("s" * 1000, is_marked=True)
    provider.ask([short], 7, 0.0)

    assert provider.ask([short], 7, 1.0) == Usage(1000, 7, 0, 0)


@pytest.mark.parametrize("provider", [openai(), anthropic()])
def test_after_five_minutes_without_use_it_is_forgotten_and_use_keeps_it(provider: CachingProvider):
    request = [block("s" * 1280, is_marked=True)]
    cached = [provider.ask(request, 7, at).cached_tokens for at in (0.0, 300.0, 600.0, 901.0)]

    assert cached == [0, 1280, 1280, 0]


def test_anthropic_keeps_up_to_the_last_mark_and_finds_only_ends_that_were_marked():
    provider = anthropic()
    marked = block("q" * 500, is_marked=True)

    assert provider.ask([SYSTEM, marked, ANSWER], 7, 0.0) == Usage(2800, 7, 0, 2500)
    assert provider.ask([SYSTEM, block("q" * 500), block("a" * 300, is_marked=True)], 7, 1.0) == Usage(
        2800, 7, 2500, 300
    )
    assert provider.ask([SYSTEM, block("other", is_marked=True)], 7, 2.0) == Usage(2005, 7, 0, 2005)


def test_without_a_mark_anthropic_keeps_nothing():
    provider = anthropic()
    provider.ask([SYSTEM, QUESTION], 7, 0.0)

    assert provider.ask([SYSTEM, QUESTION], 7, 1.0) == Usage(2500, 7, 0, 0)


BLOCKS = st.lists(st.builds(block, st.sampled_from(["a" * 700, "b" * 900, "c" * 1500, "d"]), st.booleans()), max_size=6)
ASKED = st.lists(st.tuples(BLOCKS, st.floats(0, 400)), max_size=8)


@given(ASKED, st.sampled_from([Wire.CHAT, Wire.MESSAGES, Wire.RESPONSES]))
def test_every_token_is_read_once_from_somewhere(asked: list[tuple[list[PromptBlock], float]], wire: Wire):
    provider, again = CachingProvider(wire, len), CachingProvider(wire, len)
    at = 0.0
    for request, later in asked:
        at += later
        usage = provider.ask(request, 1, at)
        assert usage.input_tokens == sum(one.tokens for one in request)
        assert 0 <= usage.cached_tokens <= usage.input_tokens
        assert 0 <= usage.cache_write_tokens <= usage.input_tokens - usage.cached_tokens
        assert again.ask(request, 1, at) == usage
