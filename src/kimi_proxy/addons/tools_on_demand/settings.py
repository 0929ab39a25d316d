"""Settings of tools on demand."""

from kimi_proxy.core.section import AddonSettings


class DeferralSettings(AddonSettings):
    """Descriptions of rarely used tools are left out of requests; the model finds them when it needs them."""

    TABLE = "deferred_tools"
    LISTS = ("tools",)
    NOTES = ("deferred",)

    clients: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    always: tuple[str, ...] = ()

    @property
    def is_on(self) -> bool:
        return bool(self.clients or self.tools)


SETTINGS = DeferralSettings
