"""What a repository tells of its past."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Commit:
    """`paths` are the files that it modified."""

    id: str
    message: str
    paths: tuple[str, ...]
