"""Spans and metrics of chat requests for an OpenTelemetry collector."""

from kimi_proxy.addons.telemetry.settings import TelemetrySettings
from kimi_proxy.addons.telemetry.telemetry import Telemetry
from kimi_proxy.api.addon import Addon, Built, Given


def build(given: Given) -> Built:
    settings = given.config.of(TelemetrySettings)
    return Built(observers=(given.end(Telemetry(settings, given.config.providers)),))


ADDON = Addon("telemetry", TelemetrySettings, build=build)
