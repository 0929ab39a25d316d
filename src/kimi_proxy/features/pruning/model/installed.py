"""The scorer that comes with the package, or why there is none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources

from kimi_proxy.features.pruning.columns import Floats
from kimi_proxy.features.pruning.model import file, telling
from kimi_proxy.features.pruning.model.trees import Forest
from kimi_proxy.features.pruning.model.walk import Walker

NAME = "scorer.model"


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned for one kind of text."""

    forest: Forest
    walker: Walker

    def likely(self, signals: Mapping[str, Floats], check: Callable[[], None]) -> Floats:
        return self.walker.likely(signals, check)

    def shares(self, signals: Mapping[str, Floats]) -> dict[str, Floats]:
        return telling.shares(self.forest, self.walker, signals)


@dataclass(frozen=True, slots=True)
class Scorers:
    """A scorer for each kind of text that has one; where the file was refused, none at all and the fault in words."""

    learned: Mapping[str, Learned] = field(default_factory=dict)
    fault: str = ""


def load(raw: bytes) -> Scorers:
    try:
        forests = file.read(raw)
    except file.ModelRefused as e:
        return Scorers(fault=f"the learned scorer was refused, weights set by hand decide: {e}")
    return Scorers({kind: Learned(forest, Walker.of(forest)) for kind, forest in forests.items()})


@lru_cache(maxsize=1)
def installed() -> Scorers:
    try:
        raw = (resources.files(__package__) / NAME).read_bytes()
    except OSError as e:
        return Scorers(fault=f"the learned scorer cannot be read, weights set by hand decide: {e}")
    return load(raw)
