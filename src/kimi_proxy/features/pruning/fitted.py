"""The constants of the choice."""

from collections.abc import Mapping
from dataclasses import dataclass

from kimi_proxy.core.prune import SourceType


@dataclass(frozen=True, slots=True)
class Fitted:
    """Fitted on mined cases by what is kept of the answers at the same number of tokens, markers included.

    `scripts/train_scorer --select` prints what each of them gains or loses.
    """

    blank_share: float = 0.1  # of what its neighbours are worth: an empty line brings little by itself
    toll_share: float = 0.7  # of a marker's tokens: what a gap pays while gaps are chosen
    frame_share: float = 0.2  # of what is kept under it: a dearer header stays out
    outline_share: float = 0.4  # of the answer's tokens: so cheap an outline stays at any ratio


# Those of logs are set by hand.
FITTED: Mapping[SourceType, Fitted] = {
    "code": Fitted(),
    "docs": Fitted(),
    "logs": Fitted(toll_share=1.0),
}
