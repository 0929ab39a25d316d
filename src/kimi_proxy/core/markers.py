"""Ids, and the markers that replace cut text: one grammar for writing and reading them."""

import html
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Entropy = Callable[[int], bytes]

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, lower case
RANDOM_BYTES = 10  # 80 bits are 16 characters exactly
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]  # of ten bits: half the steps
_SHIFTS = range(RANDOM_BYTES * 8 - 10, -1, -10)

_ID = re.compile(r"(?:prn|msk)_[0-9a-hjkmnp-tv-z]{16}", re.ASCII)


def new_id(prefix: str, entropy: Entropy = secrets.token_bytes) -> str:
    number = int.from_bytes(entropy(RANDOM_BYTES), "big")
    return f"{prefix}_{''.join([_PAIRS[(number >> shift) & 1023] for shift in _SHIFTS])}"


def is_id(text: str) -> bool:
    """Return whether `text` has the form of an id; only the store knows whether it is one."""
    return _ID.fullmatch(text) is not None


def has_id(text: str) -> bool:
    """Return whether something in `text` has the form of an id."""
    return _ID.search(text) is not None


REASON_MAX_CHARS = 80

_PRUNED = re.compile(
    r"^[^\w⟦]*⟦PRUNÉ: prune_id=(?P<prune_id>\S+) "
    r"lignes (?P<start>\d{1,18})-(?P<end>\d{1,18}) \((?P<count>\d{1,18})\) raison=(?P<reason>.*)⟧(?:\W*|\": null,?)$"
)
# Control characters, line separators and bidirectional overrides would let a reason break its line.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff⟦⟧]+")
_MASKED_NAME = "[KIMI_PROXY_OBSERVATION_MASKED "  # found faster than the expression
_MASKED = re.compile(
    r"\[KIMI_PROXY_OBSERVATION_MASKED original_chars=(?P<original>\d{1,18}) "
    r"head=(?P<head>\d{1,18}) tail=(?P<tail>\d{1,18})(?: id=(?P<id>msk_[0-9a-hjkmnp-tv-z]{16}))?\]",
    re.ASCII,
)
_PRUNED_NAME = "prune_id="
# The same inside of a quoted text: JSON may write the brackets and the accent as escapes.
_PRUNED_ANYWHERE = re.compile(
    r"(?:⟦|\\u27[eE]6)PRUN(?:É|\\{1,8}u00[cC]9): prune_id=(?P<id>[^\s⟧]{1,80}) lignes \d{1,18}-\d{1,18} \(\d{1,18}\)",
)

# Both markers as a model might write them from memory: in lower case and without spaces.
_REWRITTEN = re.compile(
    r"prune_id\W{0,4}(?P<pruned>prn_[0-9a-z]{16})lignes\d{1,18}\W{1,3}\d{1,18}"
    r"|observation_masked\W{0,4}original_chars\W{0,4}\d{1,18}(?:.{0,80}?id\W{1,4}(?P<masked>msk_[0-9a-z]{16}))?"
)
_REWRITTEN_NAME = re.compile(r"prune_id|observation_masked")
WINDOW_CHARS, STRIDE_CHARS = 2500, 2000  # a rewritten marker is shorter than the difference
MAX_IDS = 64  # limit of ids in one text

NO_PRUNE_BEGIN = "⟦NO_PRUNE_BEGIN⟧"
NO_PRUNE_END = "⟦NO_PRUNE_END⟧"


@dataclass(frozen=True, slots=True)
class PruneMarker:
    prune_id: str
    start: int
    end: int
    reason: str

    @property
    def count(self) -> int:
        return self.end - self.start + 1

    def __str__(self) -> str:
        span = f"lignes {self.start}-{self.end} ({self.count})"
        return f"⟦PRUNÉ: prune_id={self.prune_id} {span} raison={self.reason}⟧"


def read(line: str) -> PruneMarker | None:
    """Return the marker that `line` is, if it is one, also as a member of JSON, a comment or a row of cells.

    Anyone can write one: only the store proves its id.
    """
    found = _PRUNED.match(line)
    if found is None:
        return None
    start = int(found["start"])
    end = int(found["end"])
    if int(found["count"]) != end - start + 1:
        return None
    return PruneMarker(found["prune_id"], start, end, found["reason"])


@dataclass(frozen=True, slots=True)
class MaskMarker:
    """The marker between the head and the tail of a masked text; sizes are in characters."""

    mask_id: str
    original_chars: int
    head_chars: int
    tail_chars: int

    def __str__(self) -> str:
        sizes = f"original_chars={self.original_chars} head={self.head_chars} tail={self.tail_chars}"
        return f"\n... [KIMI_PROXY_OBSERVATION_MASKED {sizes} id={self.mask_id}] ...\n"


def read_mask(text: str) -> MaskMarker | None:
    """Return the first masking marker in `text`; `mask_id` is "" if it has no id."""
    found = _MASKED.search(text) if _MASKED_NAME in text else None
    if found is None:
        return None
    return MaskMarker(found["id"] or "", int(found["original"]), int(found["head"]), int(found["tail"]))


def quoted_id(text: str) -> str | None:
    """Return the id of a marker of either kind in `text`; "" if it has none, None without a marker."""
    masked = read_mask(text)
    if masked is not None:
        return masked.mask_id
    pruned = _PRUNED_ANYWHERE.search(text) if _PRUNED_NAME in text else None
    return None if pruned is None else pruned["id"]


def quoted_ids(text: str) -> set[str]:
    """Return the ids that markers in `text` name, the first 64 at most. Only the store knows which are real."""
    patterns = ((_MASKED_NAME, _MASKED), (_PRUNED_NAME, _PRUNED_ANYWHERE))
    named = (found["id"] for name, pattern in patterns if name in text for found in pattern.finditer(text))
    ids: set[str] = set()
    for id in named:
        if id and is_id(id):
            ids.add(id)
        if len(ids) == MAX_IDS:
            break
    return ids


def rewritten_id(text: str) -> str | None:
    """Like `quoted_id`, but also for a marker with different case, spaces, brackets or characters.

    It takes linear time. Brackets are ignored: a marker without them still replaces text.
    """
    exact = quoted_id(text)
    if exact is not None:
        return exact
    for window in _windows(text.lower()):
        plain = unicodedata.normalize("NFKC", html.unescape(window)).lower()
        if found := _REWRITTEN.search("".join(plain.split())):
            return found["pruned"] or found["masked"] or ""
    return None


def _windows(text: str) -> Iterator[str]:
    """Yield pieces of a text in lower case that hold every place where a marker may begin, with what follows it."""
    found = _REWRITTEN_NAME.search(text)
    while found is not None:
        yield text[found.start() : found.start() + WINDOW_CHARS]
        found = _REWRITTEN_NAME.search(text, found.start() + STRIDE_CHARS)


def clean_reason(text: str) -> str:
    """Return `text` as a marker can hold it: one line, printable, without the brackets, at most 80 characters."""
    one_line = " ".join(_UNPRINTABLE.sub(" ", text).split())
    return one_line if len(one_line) <= REASON_MAX_CHARS else one_line[: REASON_MAX_CHARS - 1].rstrip() + "…"
