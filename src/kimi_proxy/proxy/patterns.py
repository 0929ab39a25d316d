"""Translation of ripgrep's patterns for `grep -E`, which is used if ripgrep is not installed.

A pattern matches the same lines with both programs: anything that only one of them supports is refused, such as a
back-reference."""

import re
from collections.abc import Iterator

from kimi_proxy.core.errors import ToolFailed

# In brackets and outside of them.
_CLASSES = {
    "d": "0-9",
    "w": "[:alnum:]_",
    "s": "[:space:]",
}
_LITERALS = {"t": "\t", "f": "\f", "v": "\v", "r": "\r", "a": "\a", "0": ""}
_SPECIAL = frozenset(".[]{}()\\*+?^$|")
_LAZY = re.compile(r"(?:[*+?]|\{\d*+(?:,\d*+)?\})\?")
_GROUP = re.compile(r"\(\?(?::|P?<[A-Za-z_]\w*>)")
_BRACKET = re.compile(r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\\[])*\]", re.DOTALL)


def is_caseless(patterns: tuple[str, ...]) -> bool:
    """Return whether all patterns begin with `(?i)`. Raise ToolFailed if only some do."""
    flagged = [pattern.startswith("(?i)") for pattern in patterns]
    if any(flagged) and not all(flagged):
        raise _refusal("(?i) in some of several patterns")
    return any(flagged)


def to_extended(pattern: str) -> str:
    """Return what `grep -E` has to be given for `pattern`. Raise ToolFailed if it cannot say the same."""
    return "".join(_pieces(pattern.removeprefix("(?i)")))


def _pieces(pattern: str) -> Iterator[str]:
    at = 0
    while at < len(pattern):
        char = pattern[at]
        lazy, group, bracket = (form.match(pattern, at) for form in (_LAZY, _GROUP, _BRACKET))
        if char == "\\":
            yield _escape(pattern[at + 1 : at + 2])
            at += 2
        elif char == "[":
            if bracket is None:
                raise _refusal("a class inside of a class")
            yield _bracket(bracket[0])
            at = bracket.end()
        elif lazy:  # which lines match is the same with and without
            yield lazy[0][:-1]
            at = lazy.end()
        elif pattern.startswith("(?", at):
            if group is None:
                raise _refusal(pattern[at : at + 4])
            yield "("
            at = group.end()
        else:
            yield char
            at += 1


def _escape(char: str) -> str:
    """Return the replacement of an escaped character outside brackets."""
    if char.lower() in _CLASSES:
        return f"[{'^' if char.isupper() else ''}{_CLASSES[char.lower()]}]"
    if char in ("b", "B") or char in _SPECIAL:
        return f"\\{char}"
    if _LITERALS.get(char):
        return _LITERALS[char]
    if not char or char.isalnum():
        raise _refusal(f"\\{char}")
    return char


def _bracket(text: str) -> str:
    """Return a class in brackets; grep takes a backslash in one for itself."""
    inside = text[1:-1]
    if "&&" in inside or "--" in inside or "~~" in inside:
        raise _refusal(text)
    negated = inside.startswith("^")
    members, first, last = inside[negated:], "", ""
    out: list[str] = []
    for found in re.finditer(r"\\(.)|(\[:\^?[a-z]+:\])|(.)", members, re.DOTALL):
        escaped, named, plain = found.groups()
        if named and "^" in named:
            raise _refusal(text)
        if escaped in ("D", "W", "S") or (escaped and escaped.isalnum() and escaped not in _CLASSES | _LITERALS):
            raise _refusal(text)
        piece = named or plain or _CLASSES.get(escaped) or _LITERALS.get(escaped) or escaped
        # The positions in which they are literal: `]` first, `-` last, `^` not first.
        if piece == "]":
            first = "]"
        elif piece in ("-", "^") and escaped:
            last += piece
        else:
            out.append(piece)
    order = "".join((first, *out, "".join(sorted(last, reverse=True))))
    return f"[{'^' if negated else ''}{order}]"


def _refusal(what: str) -> ToolFailed:
    return ToolFailed("no_search_program", f"{what!r} in a pattern needs ripgrep (rg), which is not installed")
