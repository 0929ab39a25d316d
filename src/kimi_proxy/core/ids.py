"""Handles for what was cut: short, because every marker pays for them, and unguessable."""

import re
import secrets
from collections.abc import Callable

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
RANDOM_BYTES = 10  # 80 bits are 16 characters exactly

_ID = re.compile(r"(?:prn|msk)_[0-9a-hjkmnp-tv-z]{16}", re.ASCII)

Entropy = Callable[[int], bytes]


def new_id(prefix: str, entropy: Entropy = secrets.token_bytes) -> str:
    number = int.from_bytes(entropy(RANDOM_BYTES), "big")
    digits = (ALPHABET[(number >> shift) & 31] for shift in range(RANDOM_BYTES * 8 - 5, -1, -5))
    return f"{prefix}_{''.join(digits)}"


def is_id(text: str) -> bool:
    """Whether `text` has the form of a handle; only the store knows whether it is one."""
    return _ID.fullmatch(text) is not None
