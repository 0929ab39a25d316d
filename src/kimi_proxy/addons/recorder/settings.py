"""Settings of recordings."""

from pydantic import Field

from kimi_proxy.core.section import AddonSettings


class RecordSettings(AddonSettings):
    """Conversations are recorded; off by default, because a recording holds every word of them."""

    TABLE = "record"

    enabled: bool = False
    dir: str = ""
    max_bytes: int = Field(default=64 * 1024**2, ge=1024)

    @property
    def is_on(self) -> bool:
        return self.enabled


SETTINGS = RecordSettings
