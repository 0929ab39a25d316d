"""Texts on which a pattern may take long, made of its own parse tree.

A pattern takes more than linear time where it can read the same characters in several ways, or begin again and again:
many times what it repeats, or what stands before that, and then something that it does not match."""

import re
import re._constants as sre  # type: ignore[import-untyped]
import re._parser as parser  # type: ignore[import-untyped]
from collections.abc import Iterator

MANY = 16  # a repeat of up to so many costs no more than that
CANDIDATES = "a0 <>()[]{}\"'/\\.,:;=-_#*`|&@!?%$^~+\tAé\n"

_CATEGORIES = {
    sre.CATEGORY_DIGIT: "0",
    sre.CATEGORY_NOT_DIGIT: "a",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_NOT_SPACE: "a",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_WORD: ".",
}
_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT)


def inputs(pattern: re.Pattern[str] | re.Pattern[bytes]) -> list[tuple[str, str]]:
    """Return beginnings, each with what is repeated after it, for every repeat of the pattern."""
    found: dict[tuple[str, str], None] = {}
    for before, around, repeated in _repeats(list(parser.parse(pattern.pattern, pattern.flags)), "", ""):
        for unit in (repeated, before, around, before + repeated, f"{before}\n", f"{repeated}\n"):
            for prefix in ("", before, around) if unit in (repeated, f"{repeated}\n") else ("",):
                if unit:
                    found.setdefault((prefix, unit))
    return list(found)


def _repeats(nodes: list[tuple[object, object]], around: str, last: str) -> Iterator[tuple[str, str, str]]:
    """Yield, of each repeat: a text for all before it, one for what is right before it, and one for what it repeats."""
    before = around
    for operator, argument in nodes:
        text = _sample(operator, argument)
        for inner in _inner(operator, argument):
            yield from _repeats(list(inner), before, last)
        if operator in _REPEATS:
            _, most, repeated = argument  # type: ignore[misc]
            if most > MANY:
                for unit in _alternatives(list(repeated)):
                    yield before, last, unit
        before, last = before + text, text or last


def _inner(operator: object, argument: object) -> Iterator[list[tuple[object, object]]]:
    if operator in (*_REPEATS, sre.POSSESSIVE_REPEAT):
        yield argument[2]  # type: ignore[index]
    elif operator is sre.SUBPATTERN:
        yield argument[3]  # type: ignore[index]
    elif operator is sre.ATOMIC_GROUP:
        yield argument  # type: ignore[misc]
    elif operator is sre.BRANCH:
        yield from argument[1]  # type: ignore[index]
    elif operator in (sre.ASSERT, sre.ASSERT_NOT):
        yield argument[1]  # type: ignore[index]


def _alternatives(nodes: list[tuple[object, object]]) -> list[str]:
    """Return texts that the nodes match: one for each branch, where there is nothing but branches."""
    if len(nodes) == 1 and nodes[0][0] is sre.BRANCH:
        return [_text(list(branch)) for branch in nodes[0][1][1]]  # type: ignore[index]
    if len(nodes) == 1 and nodes[0][0] is sre.SUBPATTERN:
        return _alternatives(list(nodes[0][1][3]))  # type: ignore[index]
    return [_text(nodes)]


def _text(nodes: list[tuple[object, object]]) -> str:
    return "".join(_sample(operator, argument) for operator, argument in nodes)


def _sample(operator: object, argument: object) -> str:
    """Return a short text that a node matches, with each repeat at least once."""
    if operator is sre.LITERAL:
        return chr(argument)  # type: ignore[arg-type]
    if operator in (sre.NOT_LITERAL, sre.ANY, sre.IN):
        return _character(operator, argument)
    if operator in (*_REPEATS, sre.POSSESSIVE_REPEAT):
        least, most, repeated = argument  # type: ignore[misc]
        return _text(list(repeated)) * min(max(least, 1), most)
    if operator in (sre.ASSERT, sre.ASSERT_NOT, sre.AT):
        return ""
    return next((_text(list(inner)) for inner in _inner(operator, argument)), "")


def _character(operator: object, argument: object) -> str:
    """Return a character of a set; of a negated one, the plainest that is in it."""
    if operator is sre.IN and argument[0][0] is not sre.NEGATE:  # type: ignore[index]
        kind, what = argument[0]  # type: ignore[index]
        if kind is sre.LITERAL:
            return chr(what)
        return chr(what[0]) if kind is sre.RANGE else _CATEGORIES.get(what, "a")
    tree = parser.SubPattern(parser.State(), [(operator, argument)])
    matches = re._compiler.compile(tree).fullmatch  # type: ignore[attr-defined]
    return next((candidate for candidate in CANDIDATES if matches(candidate)), "a")
