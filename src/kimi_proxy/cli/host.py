"""The kimi-proxy that runs on this machine, as other commands talk to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kimi_proxy.core.config import Config
    from kimi_proxy.proxy.control import Control
    from kimi_proxy.proxy.processes import Pid

EXIT_NOT_RUNNING = 3
MARGIN_S = 15.0  # what a server may take to end, and we to say so


@dataclass(frozen=True, slots=True)
class Host:
    """`background` is its process if `kimi-proxy mcp up` started it."""

    control: Control
    background: Pid | None


def found(config: Config) -> Host | None:
    """The one of this home, else whoever is on its port."""
    from kimi_proxy.proxy.occupant import occupant, url
    from kimi_proxy.services import background

    running = background.running(config.home)
    if running is not None:
        ours = running.pid if background.is_background(config.home, running.pid) else None
        return Host(control(config, running.addresses["proxy"]), ours)
    there = occupant(config.proxy.host, config.proxy.port) if config.proxy.port else None
    if there is not None and there.server == "kimi-proxy":
        return Host(control(config, url(config.proxy.host, config.proxy.port)), None)
    return None


def control(config: Config, url: str) -> Control:
    from kimi_proxy.proxy.control import Control

    patience_s = max(config.mcp.ready_timeout_s, config.compression.summary_timeout_s)
    return Control(url, config.token, patience_s + MARGIN_S)
