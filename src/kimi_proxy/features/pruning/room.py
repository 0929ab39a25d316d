"""How many tokens of a text may stay, for every way in that has no limit of its own."""

MOST = 7_000
SHARE = 0.2  # of the text
LEAST = 400  # less would hold little but markers
SMALL = 3_500  # of a shorter text up to so many, but no more than half of it


def room_for(tokens_before: int) -> int:
    """Return how many tokens of a text may stay, markers included."""
    return min(MOST, max(LEAST, int(SHARE * tokens_before), min(SMALL, tokens_before // 2)))
