"""Counts as people read them."""


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, in the singular only for one."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
