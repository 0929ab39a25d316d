"""Settings of telemetry."""

import re

from pydantic import Field, field_validator

from kimi_proxy.core.addresses import NO_ADDRESS, Address
from kimi_proxy.core.section import AddonSettings


class TelemetrySettings(AddonSettings):
    """Spans and metrics of chat requests go to an OpenTelemetry collector, if one is named."""

    TABLE = "telemetry"

    otlp_endpoint: Address = NO_ADDRESS
    service_name: str = Field(default="kimi-proxy", min_length=1)
    content: bool = False
    interval_s: float = Field(default=60, gt=0, le=3600)

    @field_validator("otlp_endpoint")
    @classmethod
    def _is_url(cls, url: Address) -> Address:
        if url and not re.match(r"https?://[^\s/]", url.get_secret_value()):
            raise ValueError("must begin with http:// or https:// and name a host")
        return url

    @property
    def is_on(self) -> bool:
        return bool(self.otlp_endpoint)


SETTINGS = TelemetrySettings
