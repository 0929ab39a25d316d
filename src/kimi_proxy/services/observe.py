"""The switch between acting on traffic and only observing it."""

from dataclasses import dataclass


@dataclass(slots=True)
class ObserveMode:
    """While it is on, nothing is changed and no original is kept; what would have been saved is counted."""

    is_on: bool = False
