"""When the form of Code Assist is loaded: it has no settings."""

from kimi_proxy.core.section import AddonSettings


class CodeAssistSettings(AddonSettings):
    """Gemini's API in an envelope, for clients with a login of Google and for their provider."""

    FORMS = ("/v1internal",)
    PROVIDERS = ("code-assist",)


SETTINGS = CodeAssistSettings
