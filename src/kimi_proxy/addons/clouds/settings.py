"""When the form of the clouds is loaded: it has no settings."""

from kimi_proxy.core.section import AddonSettings


class CloudsSettings(AddonSettings):
    """Bedrock and Vertex have their own form of Anthropic's API, for clients and for providers."""

    PATHS = ("/model/", "/projects/", "/v1/projects/")
    PROVIDERS = ("bedrock", "vertex")


SETTINGS = CloudsSettings
