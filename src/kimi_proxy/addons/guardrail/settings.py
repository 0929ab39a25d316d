"""When the guardrail's routes are loaded: it has no settings."""

from kimi_proxy.core.section import AddonSettings


class GuardrailSettings(AddonSettings):
    """Other gateways have tool results cut."""

    PATHS = ("/v1/compress", "/v1/retrieve/")


SETTINGS = GuardrailSettings
