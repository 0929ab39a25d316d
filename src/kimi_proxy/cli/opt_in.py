"""What `kimi-proxy doctor --all` lists: the features that are off by default, and whether they are on here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.cli.console import load_of_server
from kimi_proxy.connect.clients import CLIENTS, MEMORY_PACKAGE
from kimi_proxy.core.config.opt_in import OPT_IN, OptIn
from kimi_proxy.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that is off by default."""

    name: str
    is_on: bool
    effect: str
    turn_on: str


@dataclass(frozen=True, slots=True)
class OptInFeatures:
    """`file` is the configuration file in which they are turned on."""

    file: Path
    features: tuple[Feature, ...]


def opt_in_features(env: Mapping[str, str]) -> OptInFeatures | None:
    """Return what is off by default, with its current state; None if the settings cannot be read."""
    try:
        settings = load_of_server(env)
    except ConfigError:
        return None  # all_checks has reported it

    def is_on(feature: OptIn) -> bool:
        return feature.is_on(settings.config) if feature.settings else _has_memory_server(Path.home())

    features = tuple(Feature(each.name, is_on(each), each.effect, each.turn_on) for each in OPT_IN)
    return OptInFeatures(settings.place, features)


def _has_memory_server(home: Path) -> bool:
    """Return whether Continue runs the memory server, the one feature that is turned on in a client."""
    return any(_mentions(home / path, MEMORY_PACKAGE) for path, _ in CLIENTS["continue"].memory)


def _mentions(file: Path, words: str) -> bool:
    try:
        return words in file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False
