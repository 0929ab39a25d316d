"""The table of models: complete rows, and the spellings under which a model is found."""

from datetime import date

import pytest

from kimi_proxy.core.chat.wires import BY_NAME
from kimi_proxy.core.config import parse
from kimi_proxy.features.accounting import Prices, prices_of
from kimi_proxy.features.models import known as known_models
from kimi_proxy.features.models.known import LOCAL, find, table


def test_every_row_says_what_it_holds_from_where_and_when(tmp_path):
    providers = parse("", {}, tmp_path).providers

    assert len(table()) > 250
    for row in table():
        assert row.provider in providers or row.provider == LOCAL, row
        assert row.apis and set(row.apis) <= {"chat", "messages", "responses"}, row
        assert row.tokenizer and row.source, row
        assert 4_000 <= row.window <= 10_000_000, row
        assert date.fromisoformat(row.checked) >= date(2026, 11, 1), row
        assert (row.input_usd is None) == (row.output_usd is None), row
        assert row.cached_usd is None or row.input_usd is None or row.cached_usd <= row.input_usd, row
        if row.provider in providers:
            assert all(providers[row.provider].speaks(BY_NAME[api]) for api in row.apis), row


def test_no_provider_has_two_rows_of_one_name():
    names = [(row.provider, name) for row in table() for name in (row.name, *row.aliases)]

    assert len(names) == len(set(names))


@pytest.mark.parametrize("maker", ["anthropic", "openai", "kimi", "kimi-code", "gemini", "mistral", "deepseek"])
def test_the_makers_of_the_usual_models_are_there(maker: str):
    assert any(row.provider == maker for row in table())


@pytest.mark.parametrize(
    ("asked", "provider", "name"),
    [
        ("claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-20250929", "anthropic", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5[1m]", "anthropic", "claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4.5", "anthropic", "claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-sonnet-4.5:free", "anthropic", "claude-sonnet-4-5"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic", "claude-sonnet-4-5"),
        ("arn:aws:bedrock:x:1:inference-profile/eu.anthropic.claude-opus-4-0-v1:0", "anthropic", "claude-opus-4"),
        ("claude-sonnet-4-5@20250929", "anthropic", "claude-sonnet-4-5"),
        ("claude-opus-4-0", "anthropic", "claude-opus-4"),
        ("claude-opus-4-20250514", "anthropic", "claude-opus-4"),
        ("claude-3-5-sonnet-latest", "anthropic", "claude-3-5-sonnet"),
        ("gpt-5.4-2026-03-05", "openai", "gpt-5.4"),
        ("GPT-5.3-codex", "openai", "gpt-5.3-codex"),
        ("moonshotai/kimi-k2.5", "kimi", "kimi-k2.5"),
        ("kimi-k2-0905-preview", "kimi", "kimi-k2-0905-preview"),
        ("codestral-2508", "mistral", "codestral"),
        ("llama3.1:8b", LOCAL, "llama3.1"),
        ("qwen3-coder:30b", LOCAL, "qwen3-coder"),
    ],
)
def test_a_model_is_found_by_its_name_alias_date_tag_or_prefix(asked: str, provider: str, name: str):
    found = find(asked)

    assert found is not None
    assert (found.provider, found.name) == (provider, name)


@pytest.mark.parametrize("asked", ["", "/", "unheard-of", "claude", "x" * 10_000, "/" * 10_000, "20250929"])
def test_a_name_that_is_not_in_the_table_is_not_found(asked: str):
    assert find(asked) is None


def test_the_provider_that_serves_a_model_has_the_first_word():
    assert find("openai/gpt-oss-120b", "nvidia") == known_models._index()["openai/gpt-oss-120b"][1]
    assert find("openai/gpt-oss-120b", "groq") == known_models._index()["openai/gpt-oss-120b"][0]


def test_prices_are_those_of_the_provider_that_charges_them():
    row = find("claude-opus-5-5")

    assert row is not None
    assert prices_of(row.as_model("anthropic", charges=True)) == Prices(4, 0.2, 5, 20)
    assert prices_of(row.as_model("openrouter", charges=False)) is None
    assert row.as_model("openrouter", charges=False).max_context_size == 1_000_000
