"""A text as a tree of records, and the markers that replace omitted runs of them.

A gap keeps the format valid: a string among the members of JSON, a comment in XML and YAML, a row with as many cells in
CSV. Everything outside the gaps stays unchanged.
"""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

MARKER_CHARS = 150  # of a marker with its surroundings: a shorter gap is not worth one
MANY = 8  # records are also alike if nearly all have one key, whatever the first two are like
ALIKE = 0.8  # of the values of an object: then its keys are names, and its values records
UNIT_CHARS = 600  # the smallest node that is looked into: below, gaps would cost more than they save
ONE_LINE_CHARS = 2000  # a text of one line that is longer than this is numbered by its parts
LONG_LINE_CHARS = 400  # on average: lines that are longer are numbered by their parts


@dataclass(frozen=True, slots=True)
class GapStyle:
    """The text around a marker among the children of a node."""

    before: str = ""
    after: str = ""
    is_json: bool = False  # the marker is written as the inside of a JSON string

    def wrap(self, marker: str) -> str:
        inside = json.dumps(marker, ensure_ascii=False)[1:-1] if self.is_json else marker
        return f"{self.before}{inside}{self.after}"


PLAIN = GapStyle()
ELEMENT = GapStyle('"', '"', is_json=True)
MEMBER = GapStyle('"', '": null', is_json=True)
IN_STRING = GapStyle(" ", " ", is_json=True)
XML_COMMENT = GapStyle("<!-- ", " -->")
YAML_COMMENT = GapStyle("# ")
SCRIPT_COMMENT = GapStyle("/* ", " */")
INLINE = GapStyle(" ", " ")

PIECE = "#piece"  # the key of a stretch of text, which equals no other


@dataclass(slots=True)
class Node:
    """`text[start:end]`: a record, a member, or a leaf. Without a style its children only say what its values are."""

    start: int
    end: int
    key: str = ""
    value: str = ""  # of a leaf
    children: list["Node"] = field(default_factory=list)
    style: GapStyle | None = None
    is_list: bool = False  # its children are records: their keys, if they have any, are names
    is_pinned: bool = False  # stays wherever the node around it does
    odd: float = 0.0  # how much it is unlike its likes

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class RecordGap:
    """`count` omitted children of a node: `text[start:end]`."""

    start: int
    end: int
    count: int
    style: GapStyle
    errors: int = 0  # of the children, those that report a failure


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit that is kept or cut as a whole, with its enclosing nodes, outermost first."""

    node: Node
    around: tuple[Node, ...]


def are_alike(records: Sequence[Node], among: int) -> bool:
    """Return whether the nodes with members among the children of a container are records with like members."""
    if len(records) < 2 or len(records) < ALIKE * among:
        return False
    first, second = ({child.key for child in one.children} for one in records[:2])
    if 2 * len(first & second) >= max(1, len(first | second)):
        return True
    seen = Counter(key for one in records for key in {child.key for child in one.children})
    return len(records) >= MANY and max(seen.values(), default=0) >= ALIKE * len(records)


def units(root: Node, unit_chars: int = UNIT_CHARS) -> list[Unit]:
    """Return the nodes that stay or go as a whole: those that are small, or cannot be looked into."""
    found: list[Unit] = []
    rest: list[Unit] = [Unit(root, ())]
    while rest:
        unit = rest.pop()
        node = unit.node
        if node.style is None or not node.children or (node.size <= unit_chars and unit.around):
            found.append(unit)
        else:
            around = (*unit.around, node)
            rest += [Unit(child, around) for child in reversed(node.children)]
    return found


def gaps(
    root: Node,
    is_whole: Callable[[Node], bool],
    is_open: Callable[[Node], bool],
    marker_chars: int = MARKER_CHARS,
    failures: Sequence[int] = (),
) -> list[RecordGap]:
    """Return the gaps if only these nodes stay as a whole, with the surroundings of their parts.

    A run that costs less than a marker stays. `failures` are the starts of nodes that report one, in order.
    """
    found: list[RecordGap] = []
    rest = [root]
    while rest:
        node = rest.pop()
        run: list[Node] = []
        for child in (*node.children, None) if node.style else ():
            stays = child is None or is_whole(child)
            if child is not None and not stays and not child.is_pinned and not is_open(child):
                run.append(child)
                continue
            if run and run[-1].end - run[0].start > marker_chars and node.style:
                errors = sum(holds_any(failures, one) for one in run) if failures else 0
                found.append(RecordGap(run[0].start, run[-1].end, len(run), node.style, errors))
            run = []
            if child is not None and not stays:
                rest.append(child)
    return sorted(found, key=lambda gap: gap.start)


def holds_any(places: Sequence[int], node: Node) -> bool:
    """Return whether one of these places is in the node."""
    at = bisect_left(places, node.start)
    return at < len(places) and places[at] < node.end


def write(text: str, gaps: Sequence[RecordGap], marker: Callable[[RecordGap], str]) -> str:
    """Return `text` with a marker in each gap."""
    pieces: list[str] = []
    at = 0
    for gap in gaps:
        pieces += (text[at : gap.start], gap.style.wrap(marker(gap)))
        at = gap.end
    return "".join((*pieces, text[at:]))


def fills_lines(text: str, start: int, end: int) -> bool:
    """Return whether `text[start:end]` has only a comma next to it on its lines."""
    line = text.rfind("\n", 0, start) + 1
    after = text.find("\n", end)
    return not text[line:start].strip() and text[end : len(text) if after < 0 else after].strip() in ("", ",")


def pin_broken_lines(text: str, root: Node) -> None:
    """Pin each node that shares a line with another one, so that whole lines go."""
    rest = [root]
    while rest:
        node = rest.pop()
        if node.style is None:
            continue
        for child in node.children:
            child.is_pinned = child.is_pinned or not fills_lines(text, child.start, child.end)
        rest += node.children


def is_one_line(text: str) -> bool:
    """Return whether a text has no lines to be numbered by, and is long enough to be numbered by its parts."""
    return len(text) > ONE_LINE_CHARS and "\n" not in text.rstrip("\n")


def has_long_lines(text: str) -> bool:
    """Return whether a text is numbered by its parts, because its lines are very long on average."""
    return is_one_line(text) or len(text) > max(ONE_LINE_CHARS, LONG_LINE_CHARS * (text.count("\n") + 1))


def move(root: Node, chars: int) -> None:
    """Move a tree to where its text stands in another one."""
    for node in descend(root):
        node.start += chars
        node.end += chars


def part_starts(root: Node) -> list[int]:
    """Return where the parts of a text begin: at each unit, and where the last one of a node has ended."""
    starts = {0}
    for unit in units(root):
        starts.add(unit.node.start)
        for node in unit.around:
            starts.add(node.children[-1].end)
    return sorted(starts)


def descend(root: Node) -> Iterator[Node]:
    rest = [root]
    while rest:
        node = rest.pop()
        yield node
        rest += reversed(node.children)
