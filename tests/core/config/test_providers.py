"""Providers and models as the settings name them."""

from pathlib import Path

import pytest

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config, parse
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.core.errors import ConfigError


def settings(toml: str, **env: str) -> Config:
    return parse(toml, env, Path("home"))


def test_known_providers_are_there_and_switched_off():
    config = settings("")

    assert {"kimi", "openai", "anthropic", "gemini", "ollama"} <= set(config.providers)
    assert not any(provider.enabled for provider in config.providers.values())
    assert config.provider_keys == {}


def test_a_table_switches_a_known_provider_on_and_changes_only_its_keys():
    config = settings("[providers.kimi]\nidle_timeout_s = 5", KIMI_API_KEY="sk-1 ")
    kimi = config.providers["kimi"]

    assert (kimi.enabled, kimi.base_url, kimi.idle_timeout_s) == (True, "https://api.moonshot.ai/v1", 5)
    assert config.provider_keys["kimi"].get_secret_value() == "sk-1"


def test_providers_of_the_file_come_first_in_their_order():
    config = settings('[providers.zed]\nbase_url = "http://z"\n[providers.ollama]\n')

    assert list(config.providers)[:2] == ["zed", "ollama"]


def test_a_provider_that_is_off_needs_no_key():
    assert settings("[providers.kimi]\nenabled = false").provider_keys == {}


def test_clients_may_bring_their_own_key():
    assert settings('[providers.anthropic]\napi_key = ""').provider_keys == {}


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("[providers.kimi]", "KIMI_API_KEY is not set"),
        ('[providers.kimi]\napi_key = "${OTHER_KEY}"', "OTHER_KEY is not set"),
        ('[providers.kimi]\napi_key = "sk-literal"', "environment only"),
        ('[providers.kimi]\napi_key = "sk-${X}"', "environment only"),
        ('[providers.mine]\nbase_url = "http://x"\napi_keys = "x"', "api_keys"),
        ("[providers.mine]", "base_url"),
        ('[providers.mine]\nbase_url = "ftp://x"', "http"),
        ('[providers.mine]\nbase_url = "http://"', "http"),
        ('[providers.mine]\nbase_url = "http://a:b@x"', "password"),
        ('[providers.mine]\nbase_url = "http://x?key=1"', "query"),
        ('[providers.mine]\nbase_url = "http://x:99999"', "http"),
        ('[providers.mine]\nbase_url = "http://x"\nproxy = "socks"', "http"),
        ('[providers.mine]\nbase_url = "http://x"\ntype = "cohere"', "type"),
        ('[providers.mine]\nbase_url = "http://x"\nidle_timeout_s = 0', "idle_timeout_s"),
        ('[providers."a b"]\nbase_url = "http://x"', "name"),
        ('[models.m]\nprovider = "nobody"', "nobody"),
        ("[models.m]", "provider"),
        ('[models.m]\nprovider = "kimi"\nmax_context_size = 0', "max_context_size"),
    ],
)
def test_what_makes_no_sense_stops_the_start_and_is_named(toml: str, named: str):
    with pytest.raises(ConfigError, match=named):
        settings(toml)


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown():
    with pytest.raises(ConfigError, match="KIMI_API_KEY") as refused:
        settings("[providers.kimi]", KIMI_API_KEY="sk-1\r\nx: y")

    assert "sk-1" not in str(refused.value)


def test_keys_are_not_shown_by_the_settings():
    assert "sk-hush" not in repr(settings("[providers.kimi]", KIMI_API_KEY="sk-hush"))


@pytest.mark.parametrize(
    ("kind", "wires"),
    [
        ("openai", {Wire.CHAT, Wire.RESPONSES}),
        ("anthropic", {Wire.MESSAGES}),
        ("gemini", {Wire.CHAT}),
    ],
)
def test_each_type_speaks_its_apis(kind: str, wires: set[Wire]):
    provider = Provider.model_validate({"type": kind, "base_url": "http://x/"})

    assert {wire for wire in Wire if provider.speaks(wire)} == wires
    assert provider.base_url == "http://x"
