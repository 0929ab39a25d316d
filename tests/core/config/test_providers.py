"""Providers and models as the settings name them."""

from pathlib import Path

import pytest

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config, parse, require_keys
from kimi_proxy.core.config.providers import Provider, is_key_of, maker_at, may_pass_key
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

    assert (kimi.enabled, kimi.base_url, kimi.idle_timeout_s) == (True, Address("https://api.moonshot.ai/v1"), 5)
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


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("[providers.kimi]", "KIMI_API_KEY is not set"),
        ('[providers.kimi]\napi_key = "${OTHER_KEY}"', "OTHER_KEY is not set"),
    ],
)
def test_a_key_that_is_missing_stops_only_whoever_asks_the_provider(toml: str, named: str):
    config = settings(toml)

    assert config.provider_keys == {}
    with pytest.raises(ConfigError, match=named):
        require_keys(config)


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown():
    config = settings("[providers.kimi]", KIMI_API_KEY="sk-1\r\nx: y")
    with pytest.raises(ConfigError, match="KIMI_API_KEY") as refused:
        require_keys(config)

    assert config.provider_keys == {}
    assert "sk-1" not in str(refused.value)


def test_keys_are_not_shown_by_the_settings():
    assert "sk-hush" not in repr(settings("[providers.kimi]", KIMI_API_KEY="sk-hush"))


@pytest.mark.parametrize(
    ("kind", "wires"),
    [
        ("openai", {Wire.CHAT, Wire.RESPONSES}),
        ("anthropic", {Wire.MESSAGES}),
        ("gemini", {Wire.CHAT, Wire.GEMINI}),
        ("code-assist", {Wire.GEMINI}),
        ("bedrock", {Wire.MESSAGES}),
        ("vertex", {Wire.MESSAGES}),
    ],
)
def test_each_type_speaks_its_apis(kind: str, wires: set[Wire]):
    provider = Provider.model_validate({"type": kind, "base_url": "http://x/"})

    assert {wire for wire in Wire if provider.speaks(wire)} == wires
    assert kind != "code-assist" or not any(map(provider.translates, Wire))
    assert provider.base_url == Address("http://x")


def test_a_key_in_the_environment_serves_a_provider_that_the_file_does_not_name():
    config = settings("", ANTHROPIC_API_KEY="sk-ant-1", MOONSHOT_API_KEY="sk-2")

    assert {"anthropic", "kimi", "ollama"} <= config.on_demand
    assert {name: key.get_secret_value() for name, key in config.provider_keys.items()} == {
        "kimi": "sk-2",
        "anthropic": "sk-ant-1",
    }


def test_a_provider_that_the_file_names_is_not_on_demand_and_the_line_that_switches_it_off_is_known():
    config = settings("[log]\n\n[ providers.kimi ]\n# off\nenabled = false\n[providers.openai]\nenabled=false")

    assert not {"kimi", "openai"} & config.on_demand
    assert config.off_lines == {"kimi": 5, "openai": 7}


def test_the_environment_moves_a_provider_to_another_address():
    config = settings("", KIMI_PROXY_UPSTREAMS="anthropic=http://127.0.0.1:9/x/, kimi = https://relay.example/v1")

    assert config.providers["anthropic"].base_url == Address("http://127.0.0.1:9/x")
    assert config.providers["anthropic"].type == "anthropic"
    assert config.providers["kimi"].base_url == Address("https://relay.example/v1")
    assert "anthropic" in config.on_demand


@pytest.mark.parametrize("value", ["nowhere=http://x", "kimi=ftp://x", "kimi"])
def test_an_address_from_the_environment_that_makes_no_sense_is_refused(value: str):
    with pytest.raises(ConfigError, match="KIMI_PROXY_UPSTREAMS"):
        settings("", KIMI_PROXY_UPSTREAMS=value)


@pytest.mark.parametrize(
    ("credential", "owners"),
    [
        ("sk-ant-oat01-x", {"anthropic"}),
        ("sk-proj-x", {"openai"}),
        ("sk-svcacct-x", {"openai"}),
        ("sk-x", {"openai", "kimi", "deepseek", "qwen"}),
        ("sk-or-v1-x", {"openrouter"}),
        ("sk-kimi-x", {"kimi-code"}),
        ("dummy", set()),
        ("", set()),
    ],
)
def test_a_key_of_a_client_is_known_by_its_beginning(credential: str, owners: set[str]):
    assert {name for name in settings("").providers if is_key_of(name, credential)} == owners


@pytest.mark.parametrize("name", ["ollama", "lm-studio", "vllm", "deepseek", "kimi", "qwen"])
def test_no_key_goes_to_a_provider_that_neither_its_form_nor_a_file_names(name: str):
    """An OpenAI key went to DeepSeek, and any key to whatever listened on Ollama's port."""
    providers = settings("").providers
    for key in ("sk-proj-x", "sk-ant-x", "AIzax", "my-own-key"):
        assert not may_pass_key(name, providers[name], key, is_on_demand=True)


def test_a_key_goes_to_a_provider_that_a_file_names_unless_its_form_is_another_s():
    file = '[providers.deepseek]\n[providers.ours]\nbase_url = "https://llm.example.org/v1"\n[providers.ollama]\n'
    providers = settings(file).providers

    def passing(key: str) -> set[str]:
        named = ("deepseek", "ours", "ollama")
        return {name for name in named if may_pass_key(name, providers[name], key, is_on_demand=False)}

    assert passing("sk-x") == passing("a-key") == {"deepseek", "ours", "ollama"}
    assert passing("sk-proj-x") == passing("sk-ant-x") == {"ours"}


def test_a_provider_is_known_by_its_address_whatever_the_file_calls_it():
    config = settings('[providers.work]\nbase_url = "https://api.anthropic.com"\ntype = "anthropic"')

    assert maker_at("work", config.providers["work"]) == "anthropic"
    assert maker_at("ollama", config.providers["ollama"]) == "ollama"
