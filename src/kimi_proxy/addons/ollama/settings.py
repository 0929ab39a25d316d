"""When Ollama's API is loaded: it has no settings."""

from kimi_proxy.core.section import AddonSettings


class OllamaSettings(AddonSettings):
    """Ollama's API, in front of any provider."""

    PATHS = ("/api/chat", "/api/tags", "/api/show", "/api/version")


SETTINGS = OllamaSettings
