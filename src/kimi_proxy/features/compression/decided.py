"""A compression that was decided."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compression:
    """What a session's history was replaced by; the same bytes in every request from then on."""

    id: str
    cut: int  # messages before it gave way, without those of the system
    kept: tuple[int, ...]  # those of them that stayed
    fingerprint: bytes
    message: str
