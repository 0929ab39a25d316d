"""A cache is believed in until it was missed often enough."""

from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.features.accounting import MAX_MODELS, MISSES, PromptCacheBelief, Sent

LONG = Sent(9_000, 9_000, 8_000, 8_000)
MISS, HIT = Usage(9_000, 1), Usage(9_000, 1, cached_tokens=8_000)


def test_a_model_that_nobody_knows_is_believed_to_have_one():
    assert PromptCacheBelief()["m"]


def test_misses_of_what_should_have_hit_tell_that_there_is_none_and_a_hit_tells_otherwise():
    caching = PromptCacheBelief()
    for _ in range(MISSES):
        assert caching["m"]
        caching.observe("m", LONG, MISS)

    assert not caching["m"]
    assert caching["other"]
    caching.observe("m", LONG, HIT)
    assert caching["m"]


def test_what_is_short_new_rewritten_or_uncounted_tells_nothing():
    caching = PromptCacheBelief()
    for _ in range(5):
        caching.observe("m", Sent(900, 900, 800, 800), MISS)
        caching.observe("m", Sent(9_000, 9_000), MISS)
        caching.observe("m", Sent(9_000, 9_000, 8_000, 8_000, is_rewritten=True), MISS)
        caching.observe("m", LONG, None)

    assert caching["m"]


def test_no_number_of_models_fills_the_memory():
    caching = PromptCacheBelief()
    for _ in range(MISSES):
        caching.observe("first", LONG, MISS)
    for n in range(MAX_MODELS):
        caching.observe(f"m{n}", LONG, HIT)

    assert caching["first"]
