"""What is known of each provider's prompt cache."""

import re

import pytest

from kimi_proxy.features.models import known as known_models
from kimi_proxy.features.models.known import CacheRules, cache_rows, cache_rules


def life_and_prices(rules: CacheRules) -> tuple[float, float, float]:
    return rules.life_s, round(rules.read, 3), rules.write


@pytest.mark.parametrize(
    ("provider", "model", "ttl", "expected"),
    [
        ("anthropic", "claude-opus-5", "", (300, 0.1, 1.25)),
        ("anthropic", "claude-opus-5", "5m", (300, 0.1, 1.25)),
        ("anthropic", "claude-opus-5-20260401", "1h", (3600, 0.1, 2)),
        ("anthropic", "claude-opus-5.5", "1h", (3600, 0.05, 2)),
        ("anthropic", "claude-sonnet-5-5", "", (300, 0.05, 1.25)),
        ("anthropic", "claude-fable-5-1", "", (300, 0.025, 1.25)),
        ("openai", "gpt-4o", "", (3600, 0.5, 1)),
        ("openai", "gpt-5", "24h", (86_400, 0.1, 1)),
        ("openai", "gpt-5.5", "", (86_400, 0.1, 1)),
        ("openai", "gpt-5.6-terra", "30m", (1800, 0.1, 1.25)),
        ("openai", "gpt-6.1-sol", "", (1800, 0.05, 1.25)),
        ("openai", "gpt-6.1-sol", "12h", (43_200, 0.05, 2.5)),
        ("kimi", "kimi-k3", "", (300, 0.1, 1)),
        ("kimi", "kimi-k3", "1h", (3600, 0.1, 2)),
        ("deepseek", "deepseek-v4-flash", "", (86_400, 0.02, 1)),
        ("groq", "openai/gpt-oss-120b", "", (7200, 0.5, 1)),
        ("", "a-model-that-no-one-knows", "", (3600, 0.1, 1)),
    ],
)
def test_lives_and_prices_are_those_of_the_provider_and_the_model(
    provider: str, model: str, ttl: str, expected: tuple[float, float, float]
):
    assert life_and_prices(cache_rules(provider, model, ttl)) == expected


def test_a_model_behind_an_unknown_address_follows_the_rules_of_its_maker():
    for address in ("", "my-gateway"):
        assert cache_rules(address, "anthropic/claude-opus-4-7") == cache_rules("anthropic", "claude-opus-4-7")


def test_a_provider_that_caches_by_marks_caches_nothing_without_one():
    assert cache_rules("anthropic", "claude-opus-5", None).life_s == 0
    assert cache_rules("openai", "gpt-5", None).life_s > 0


def test_cold_is_half_a_minute_after_the_end_of_a_life():
    assert cache_rules("anthropic", "claude-opus-5", "1h").cold_after_s == 3630
    assert cache_rules("anthropic", "claude-opus-5", None).cold_after_s == 0


@pytest.mark.parametrize(
    ("model", "least"),
    [("claude-opus-5", 512), ("claude-sonnet-5", 1024), ("claude-opus-4-7", 2048), ("claude-haiku-4-5", 4096)],
)
def test_shorter_prefixes_than_a_model_caches_are_known(model: str, least: int):
    assert cache_rules("anthropic", model).least_tokens == least


def test_every_row_says_when_and_where_it_was_checked():
    for row in cache_rows():
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", row.rules.checked) and row.rules.source
        assert row.rules.clock in ("request", "response")
        assert row.rules.match in ("marks", "prefix", "breakpoints", "units")


def test_the_two_tables_agree_on_what_anthropic_and_the_newest_models_of_openai_charge():
    for model in known_models.table():
        if model.provider == "anthropic" or (model.provider == "openai" and "gpt-6" in model.name):
            row = next(row for row in cache_rows() if row.fits(model.provider, known_models.spelling(model.name)))
            assert model.input_usd and model.cached_usd and model.cache_write_usd
            assert model.cached_usd / model.input_usd == pytest.approx(row.rules.read, rel=0.21)
            assert model.cache_write_usd / model.input_usd == pytest.approx(row.rules.write, rel=0.05)
