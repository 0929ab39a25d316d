"""Who answers a model, and by which name."""

import pytest

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.providers import Model, Provider
from kimi_proxy.core.errors import NoProvider
from kimi_proxy.features.models import Models, Target


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
        ("off/x", Wire.CHAT, "enabled = true"),
    ],
)
def test_a_model_that_cannot_be_asked_so_is_refused_with_advice(name: str, wire: Wire, advice: str):
    with pytest.raises(NoProvider, match=advice):
        Models(PROVIDERS, MODELS).target(name, wire)


@pytest.mark.parametrize("wire", Wire)
def test_with_nobody_switched_on_the_advice_is_to_configure_somebody(wire: Wire):
    with pytest.raises(NoProvider, match=r"\[providers.NAME\]"):
        Models({"off": PROVIDERS["off"]}, {}).target("m", wire)


def test_models_of_providers_that_are_off_are_not_offered():
    assert [key for key, _ in Models(PROVIDERS, MODELS).offered()] == ["nvidia/kimi-k2.5", "kimi/kimi-k2.5", "fast"]
