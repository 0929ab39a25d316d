"""When the translation is loaded: it has no settings."""

from kimi_proxy.core.section import AddonSettings


class TranslationSettings(AddonSettings):
    """Providers that speak another API than the client are asked in theirs."""

    PROVIDERS = ("translated",)


SETTINGS = TranslationSettings
