"""Who answers a model, and by which name."""

import re
from pathlib import Path

import pytest

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import parse
from kimi_proxy.core.config.providers import Model, Provider
from kimi_proxy.core.errors import NoProvider
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.models import Models, Target, lines_to_paste, window_in


def provider(kind: str = "openai", enabled: bool = True) -> Provider:
    return Provider.model_validate({"type": kind, "base_url": "http://x", "enabled": enabled})


PROVIDERS = {
    "kimi": provider(),
    "nvidia": provider(),
    "claude": provider("anthropic"),
    "gemini": provider("gemini"),
    "off": provider(enabled=False),
}
MODELS = {
    "nvidia/kimi-k2.5": Model(provider="nvidia", model="moonshotai/kimi-k2.5"),
    "kimi/kimi-k2.5": Model(provider="kimi"),
    "fast": Model(provider="claude", model="claude-haiku"),
    "off/x": Model(provider="off"),
}

NAMES = (
    ("nvidia/kimi-k2.5", Wire.CHAT, Target("nvidia", "moonshotai/kimi-k2.5", "nvidia/kimi-k2.5")),
    ("kimi/kimi-k2.5", Wire.CHAT, Target("kimi", "kimi-k2.5", "kimi/kimi-k2.5")),
    ("moonshotai/kimi-k2.5", Wire.RESPONSES, Target("nvidia", "moonshotai/kimi-k2.5", "nvidia/kimi-k2.5")),
    ("kimi-k2.5", Wire.CHAT, Target("kimi", "kimi-k2.5", "kimi/kimi-k2.5")),
    ("claude-haiku", Wire.MESSAGES, Target("claude", "claude-haiku", "fast")),
    ("claude-haiku", Wire.CHAT, Target("kimi", "claude-haiku")),
    ("nvidia/a/b", Wire.CHAT, Target("nvidia", "a/b")),
    ("unheard/of", Wire.CHAT, Target("kimi", "of")),
    ("unheard-of", Wire.CHAT, Target("kimi", "unheard-of")),
    ("claude-opus", Wire.MESSAGES, Target("claude", "claude-opus")),
    ("/", Wire.CHAT, Target("kimi", "/")),
    ("kimi/", Wire.CHAT, Target("kimi", "kimi/")),
)


@pytest.mark.parametrize(("name", "wire", "target"), NAMES)
def test_a_name_is_resolved(name: str, wire: Wire, target: Target):
    assert Models(PROVIDERS, MODELS).target(name, wire) == target


@pytest.mark.parametrize(
    ("name", "wire", "advice"),
    [
        ("kimi/kimi-k2.5", Wire.MESSAGES, 'type = "anthropic"'),
        ("gemini/x", Wire.RESPONSES, 'type = "openai"'),
        ("off/x", Wire.CHAT, r"enabled = true in \[providers.off\]"),
    ],
)
def test_a_model_that_cannot_be_asked_so_is_refused_with_advice(name: str, wire: Wire, advice: str):
    with pytest.raises(NoProvider) as caught:
        Models(PROVIDERS, MODELS).target(name, wire)
    assert re.search(advice, caught.value.full)


TRANSLATED = (
    ("kimi/kimi-k2.5", Target("kimi", "kimi-k2.5", "kimi/kimi-k2.5")),
    ("kimi-k2.5", Target("kimi", "kimi-k2.5", "kimi/kimi-k2.5")),
    ("gemini/x", Target("gemini", "x")),
    ("kimi-k2-thinking", Target("kimi", "kimi-k2-thinking")),
    ("claude-haiku", Target("claude", "claude-haiku", "fast")),
    ("unheard-of", Target("claude", "unheard-of")),
)


@pytest.mark.parametrize(("name", "target"), TRANSLATED)
def test_a_request_may_be_translated_for_a_provider_that_does_not_speak_its_api(name: str, target: Target):
    models = Models(PROVIDERS, MODELS)

    assert models.target(name, Wire.MESSAGES, translate=True) == target
    assert models.upstream_wire(target, Wire.MESSAGES) is (Wire.MESSAGES if target.provider == "claude" else Wire.CHAT)


def test_a_name_is_translated_for_the_first_provider_of_the_file_unless_its_maker_can_be_asked(tmp_path: Path):
    models = Models.of(parse('[providers.mine]\nbase_url = "http://127.0.0.1:9/v1"\n', {}, tmp_path))

    for name in ("unheard-of", "qwen3-coder", "kimi-k2.5", "claude-haiku-4-5"):
        assert models.target(name, Wire.MESSAGES, "sk-any", translate=True) == Target("mine", name)
    logged_in = models.target("claude-haiku-4-5", Wire.MESSAGES, "sk-ant-x", translate=True)
    assert logged_in == Target("anthropic", "claude-haiku-4-5")


def test_a_maker_on_demand_is_asked_in_its_own_api_if_there_is_a_key(tmp_path: Path):
    keyed, bare = (Models.of(parse("", env, tmp_path)) for env in ({"KIMI_API_KEY": "k"}, {}))

    assert keyed.target("kimi-k2.5", Wire.MESSAGES, translate=True) == Target("kimi", "kimi-k2.5")
    with pytest.raises(NoProvider, match="there is no key for it") as caught:
        bare.target("kimi-k2.5", Wire.MESSAGES, translate=True)
    assert "KIMI_API_KEY" in caught.value.detail


@pytest.mark.parametrize("wire", Wire)
def test_with_nobody_switched_on_the_advice_is_to_configure_somebody(wire: Wire):
    with pytest.raises(NoProvider, match=r"\[providers.NAME\]"):
        Models({"off": PROVIDERS["off"]}, {}).target("m", wire)


def test_models_of_providers_that_are_off_are_not_offered():
    assert [key for key, _ in Models(PROVIDERS, MODELS).offered_models()] == [
        "nvidia/kimi-k2.5",
        "kimi/kimi-k2.5",
        "fast",
    ]


def on_demand(toml: str = "", **env: str) -> Models:
    return Models.of(parse(toml, env, Path("home")).model_copy(update={"file": Path("/etc/kimi/config.toml")}))


@pytest.mark.parametrize(
    ("name", "wire", "env", "credential", "target"),
    [
        ("claude-sonnet-4-5-20250929", Wire.MESSAGES, {"ANTHROPIC_API_KEY": "x"}, "", "anthropic"),
        ("claude-sonnet-4-5", Wire.MESSAGES, {}, "sk-ant-oat01-1", "anthropic"),
        ("claude-99", Wire.MESSAGES, {"ANTHROPIC_API_KEY": "x"}, "", "anthropic"),
        ("gpt-5.3-codex", Wire.RESPONSES, {}, "sk-proj-1", "openai"),
        ("kimi-k2.5", Wire.CHAT, {"MOONSHOT_API_KEY": "x", "OPENAI_API_KEY": "y"}, "", "kimi"),
        ("kimi-for-coding", Wire.CHAT, {}, "sk-kimi-1", "kimi-code"),
        ("unheard-of", Wire.CHAT, {"GROQ_API_KEY": "x"}, "", "groq"),
    ],
)
def test_with_a_key_a_known_provider_answers_without_a_file(
    name: str, wire: Wire, env: dict[str, str], credential: str, target: str
):
    assert on_demand(**env).target(name, wire, credential) == Target(target, name)


@pytest.mark.parametrize(
    ("name", "wire", "env", "credential", "advice"),
    [
        ("claude-opus-5-5", Wire.MESSAGES, {}, "", "set ANTHROPIC_API_KEY"),
        ("claude-opus-5-5", Wire.MESSAGES, {}, "dummy", "set ANTHROPIC_API_KEY"),
        ("gpt-5", Wire.CHAT, {"KIMI_API_KEY": "x"}, "", "set OPENAI_API_KEY"),
        ("openai/gpt-5", Wire.CHAT, {}, "sk-ant-1", "set OPENAI_API_KEY"),
        ("unheard-of", Wire.CHAT, {"KIMI_API_KEY": "x", "GROQ_API_KEY": "y"}, "", "kimi/unheard-of, groq/unheard-of"),
        ("unheard-of", Wire.MESSAGES, {}, "", "config.toml"),
    ],
)
def test_nothing_leaves_for_a_provider_that_there_is_no_key_for(
    name: str, wire: Wire, env: dict[str, str], credential: str, advice: str
):
    with pytest.raises(NoProvider) as caught:
        on_demand(**env).target(name, wire, credential)
    assert advice in caught.value.full


def test_providers_of_the_file_come_before_those_on_demand():
    models = on_demand('[providers.mine]\nbase_url = "http://x"', OPENAI_API_KEY="y")

    assert models.target("gpt-5", Wire.CHAT) == Target("mine", "gpt-5")
    assert models.target("openai/gpt-5", Wire.CHAT) == Target("openai", "gpt-5")


def test_of_several_providers_in_the_file_the_maker_of_the_model_answers():
    models = on_demand("[providers.kimi]\n[providers.openai]", OPENAI_API_KEY="y", KIMI_API_KEY="x")

    assert models.target("gpt-5", Wire.CHAT) == Target("openai", "gpt-5")
    assert models.target("unheard-of", Wire.CHAT) == Target("kimi", "unheard-of")


@pytest.mark.parametrize("name", ["kimi/kimi-k2.5", "kimi-k2.5", "kimi-9"])
def test_a_provider_that_the_file_switches_off_names_the_line_to_change(name: str):
    models = on_demand("[providers.kimi]\nenabled = false", KIMI_API_KEY="x", OPENAI_API_KEY="y")

    with pytest.raises(NoProvider, match="switched off") as caught:
        models.target(name, Wire.CHAT)
    assert "enabled = true in [providers.kimi] (/etc/kimi/config.toml, line 2)" in caught.value.detail


def test_what_is_local_needs_no_key():
    assert on_demand().target("ollama/llama3.1:8b", Wire.CHAT) == Target("ollama", "llama3.1:8b")


def test_the_settings_come_before_the_providers_word_and_that_before_the_table():
    toml = '[providers.anthropic]\n[models."claude-sonnet-4-5"]\nprovider = "anthropic"\n'
    target = Target("anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5")
    models = on_demand(toml, ANTHROPIC_API_KEY="x")

    known = models.model(target)
    assert known is not None
    assert (known.max_context_size, known.input_usd_per_million, known.cached_usd_per_million) == (200_000, 3, 0.3)
    models.learn(target, 500_000)
    assert models.window(target) == 500_000
    given = on_demand(toml + "max_context_size = 7\ninput_usd_per_million = 9", ANTHROPIC_API_KEY="x")
    given.learn(target, 500_000)
    learned = given.model(target)
    assert learned is not None
    assert (learned.max_context_size, learned.input_usd_per_million, learned.output_usd_per_million) == (7, 9, 15)


def test_without_a_word_in_the_settings_a_larger_version_of_the_same_model_is_the_sibling():
    models = on_demand(ANTHROPIC_API_KEY="x")

    assert list(models.siblings(Target("anthropic", "claude-sonnet-4-5-20250929"))) == [
        Target("anthropic", "claude-sonnet-4-6")
    ]
    assert list(models.siblings(Target("anthropic", "claude-sonnet-5-5"))) == []
    assert list(models.siblings(Target("openrouter", "claude-sonnet-4-5"))) == []


@pytest.mark.parametrize(
    ("listing", "window"),
    [
        ({"data": [{"id": "x"}, {"id": "m", "context_length": 9}]}, 9),
        ({"data": [{"id": "m", "meta": {"n_ctx_train": 8, "n_ctx": 7}}]}, 7),
        ({"data": [{"id": "m", "max_input_tokens": 5, "max_tokens": 6}]}, 5),
        ([{"id": "m", "max_model_len": 4}], 4),
        ({"data": [{"id": "m", "context_length": "9", "context_window": True, "max_model_len": 3}]}, 3),
        ({"data": [{"id": "m"}]}, None),
        ({"data": "m"}, None),
        (None, None),
        ({"data": [None, 5, {"id": []}]}, None),
    ],
)
def test_a_window_is_read_from_a_providers_list_of_models(listing: JsonValue, window: int | None):
    assert window_in(listing, "m") == window


def test_the_lines_to_paste_set_the_window():
    target = Target("ollama", 'odd"name')

    pasted = parse(lines_to_paste(target), {}, Path("home")).models['odd"name']
    assert (pasted.provider, pasted.max_context_size) == ("ollama", 131_072)
    assert lines_to_paste(target).count("\n") == 3
