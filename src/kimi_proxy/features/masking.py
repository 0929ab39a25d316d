"""Long strings in a tool's answer: relevant and failed records and lines stay, otherwise head and tail.

There are two steps, because originals must be stored first: `plan` finds the strings, the caller stores `plan.cuts`
under new ids, `apply` inserts the shortened texts."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from msgspec import Raw

from kimi_proxy.core import json as deepjson
from kimi_proxy.core import tokens
from kimi_proxy.core.config.servers import MaskingSettings
from kimi_proxy.core.json import JsonObject, JsonValue, UnreadObject
from kimi_proxy.core.markers import read_mask
from kimi_proxy.core.prune import Options, Origin, Question
from kimi_proxy.features.pruning.engine import fit
from kimi_proxy.features.pruning.kinds import type_of
from kimi_proxy.features.records.fitting import no_deadline, write_by_chars
from kimi_proxy.features.records.read import MIN_CHARS
from kimi_proxy.features.records.table import write_table
from kimi_proxy.features.records.tree import ELEMENT, MEMBER, GapStyle, RecordGap

_QUOTE = ord('"')
_BACKSLASH = ord("\\")
_COLON = re.compile(r"\s*:")


def long_values(text: str, max_chars: int) -> Iterator[tuple[int, int]]:
    """Yield the spans, quotes included, of the string values with more than `max_chars` between their quotes.

    `text` is a JSON array or object: outside of strings there are no quotes and no backslashes.
    """
    # Once pairs of backslashes are removed, a backslash before a quote escapes it.
    plain = text.replace("\\\\", "__")
    codes = (
        np.frombuffer(plain.encode("latin-1"), np.uint8)
        if plain.isascii()
        else np.frombuffer(plain.encode("utf-32-le", "surrogatepass"), np.uint32)
    )
    quotes = np.flatnonzero(codes == _QUOTE)
    quotes = quotes[codes[quotes - 1] != _BACKSLASH]
    openings = quotes[::2]
    closings = quotes[1::2]
    for i in np.flatnonzero(closings - openings - 1 > max_chars):
        start = int(openings[i])
        end = int(closings[i]) + 1
        if not _COLON.match(text, end):
            yield start, end


SCANNED_BYTES = 1024**2  # at a time: about a millisecond


def may_hold_long(view: Raw, max_chars: int, slice_bytes: int = SCANNED_BYTES) -> bool:
    """Return whether a string in an array or object may have more than `max_chars`; False is certain.

    It reads slice by slice, so that other threads have their turns.
    """
    codes = np.frombuffer(view, np.uint8)
    seen = 0  # quotes that begin or end a string
    last = 0  # where the last of them is
    for at in range(0, len(codes), slice_bytes):
        quotes = np.flatnonzero(codes[at : at + slice_bytes] == _QUOTE) + at
        escaped = codes[quotes - 1] == _BACKSLASH
        if (codes[quotes[escaped] - 2] == _BACKSLASH).any():
            return True  # which of the two is escaped would have to be counted
        quotes = quotes[~escaped]
        gaps = np.diff(quotes, prepend=last)
        if (gaps[1 - seen % 2 :: 2] > max_chars + 1).any():  # those that a closing quote ends
            return True
        seen += len(quotes)
        last = int(quotes[-1]) if len(quotes) else last
    return False


# The middle of a JSON text: members that can go while the text stays JSON. Only the head and the tail are read.

Kind: TypeAlias = Literal["array", "object"]

# Each level is one more pass over its contents.
MAX_LEVELS = 32

# A string that the head breaks off runs to the end of it, an escape possibly torn.
_FORWARD = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
# Read backwards, a quote inside a string has its backslash behind it; the opening quote never has.
_BACKWARD = re.compile(r'"[^"]*+(?:"(?=\\)[^"]*+)*(?:"|\Z)|[{}\[\],]', re.DOTALL)


@dataclass(slots=True)
class _Frame:
    """A container around the end of a part: how many of its members lie whole before, and where they end."""

    kind: Kind
    whole: int
    edge: int


def middle_members(text: str, head_chars: int, tail_chars: int) -> tuple[int, int, Kind] | None:
    """Return the range of the members of a JSON array or object that neither head nor tail contains completely.

    They belong to the innermost container that the head enters and the tail leaves. The remaining text has a comma or
    its brackets at the edges of the gap, so exactly one member fits in between.
    """
    entered = _frames(text[:head_chars], _FORWARD, "{[")
    left = _frames(text[len(text) - tail_chars :][::-1], _BACKWARD, "}]")
    inside = _values(text)
    for front, back in list(zip(entered, left, strict=False))[:MAX_LEVELS]:
        last = len(inside) - 1 - back.whole
        if front.whole < last:
            return front.edge, len(text) - back.edge, front.kind
        if front.whole > last:
            return None
        inside = _values(inside[last])
    return None


def _values(text: str | Raw) -> Sequence[Raw]:
    members = deepjson.children(text)
    return tuple(members.values()) if isinstance(members, dict) else members


def _frames(part: str, tokens: re.Pattern[str], openings: str) -> list[_Frame]:
    """Return the containers that are still open at the end of `part`, outermost first."""
    open_: list[_Frame] = []
    for token in tokens.finditer(part):
        character = part[token.start()]
        if character == '"':
            continue
        if character == ",":
            open_[-1].whole += 1
            open_[-1].edge = token.end()
        elif character in openings:
            open_.append(_Frame("object" if character in "{}" else "array", 0, token.end()))
        else:
            open_.pop()
    return open_


SMALL_MEMBERS, SMALL_CHARS = 2_500, 16_000
MAX_CHOSEN_CHARS = 2_000_000  # of a longer text the head and tail: choosing would take a second and more
KIND_NAMES = ("type", "mimeType", "uri")  # length of members that describe the kind of a block
KIND_BYTES = 200  # of such a member, if it is worth reading
MAX_TABLE_CHARS = 200_000  # of a longer text no table would fit
MARKER_CHARS = 200  # more than any marker has
SLACK_SHARE = 0.1  # beyond `max_chars`: the size of the text around a string of which only head and tail stay

_ANY_ID = "msk_" + "0" * 16
_CONTAINERS = (dict, list)


HEAD_AND_TAIL = GapStyle("\n", "\n")  # of a text that is cut by characters alone


@dataclass(frozen=True, slots=True)
class MaskCut:
    """A text with gaps, each behind a marker that counts the characters around it."""

    text: str
    gaps: tuple[RecordGap, ...]
    limits: MaskingSettings | None = None  # that it was cut by, where they are tighter than the server's
    goal: str = ""  # that its records were chosen for
    is_table: bool = False  # all of it is shown, as a table

    @classmethod
    def middle(cls, text: str, start: int, end: int, among: Kind | None = None) -> "MaskCut":
        """Return the cut of one stretch of a text, which may be members of JSON."""
        styles = {None: HEAD_AND_TAIL, "array": ELEMENT, "object": MEMBER}
        return cls(text, (RecordGap(start, end, 1, styles[among]),))

    def render(self, mask_id: str) -> str:
        if self.is_table and (table := write_table(self.text)):
            return table(mask_id)
        return write_by_chars(self.text, self.gaps, mask_id)

    @property
    def chars(self) -> int:
        return len(self.render(_ANY_ID))

    @property
    def saving(self) -> int:
        return len(self.text) - self.chars


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON text whose long strings are at `tokens`, each from quote to quote."""

    text: str
    tokens: tuple[tuple[int, int, "MaskCut | Document"], ...]

    @property
    def chars(self) -> int:
        """Return the remaining characters, those of its strings counted without escapes."""
        gone = sum(end - start - 2 for start, end, _ in self.tokens)
        return len(self.text) - gone + sum(inside.chars for _, _, inside in self.tokens)


Long: TypeAlias = MaskCut | Document
Place = tuple[JsonValue, int, str | int]  # a container, the index of the place around it, and its key there


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """The long strings of an unread object: `spots` are their positions in its bytes, and their contents."""

    value: UnreadObject
    spots: tuple[tuple[int, int, Long], ...]

    @property
    def cuts(self) -> tuple[MaskCut, ...]:
        """Return the cuts whose texts have to be stored, each text once."""
        return tuple({cut.text: cut for _, _, long in self.spots for cut in _cuts(long)}.values())


@dataclass(frozen=True, slots=True)
class MaskPlan:
    """The long strings of a value: `spots` are the index of a place, a key there, and the string."""

    value: JsonValue
    places: tuple[Place, ...]
    spots: tuple[tuple[int, str | int, Long], ...]

    @property
    def cuts(self) -> tuple[MaskCut, ...]:
        """Return the cuts whose texts have to be stored, each text once."""
        found = {cut.text: cut for _, _, long in self.spots for cut in _cuts(long)}
        return tuple(found.values())


PlanText: TypeAlias = Callable[[str], Long | None]  # how to shorten a text; None if it stays as it is


def plan(value: JsonValue, limits: MaskingSettings, plan_long: PlanText | None = None) -> MaskPlan | ViewPlan:
    """Return the strings of `value` that are worth hiding, each as `plan_long` says, else as `plan_text` does."""
    plan_long = plan_long or partial(plan_text, limits=limits)
    if isinstance(value, UnreadObject):
        return _plan_views(value, limits, plan_long)
    if not _has_long(value, limits.max_chars):
        return MaskPlan(value, (), ())
    places, strings = _walk(value, limits.max_chars)
    spots = ((place, key, plan_long(text)) for place, key, text in strings)
    return MaskPlan(value, places, tuple((p, k, long) for p, k, long in spots if long is not None))


def long_texts(value: JsonValue, limits: MaskingSettings) -> tuple[str, ...]:
    """Return the strings of `value` that are longer than `limits` allow, each once."""
    return tuple(cut.text for cut in plan(value, limits, lambda text: MaskCut(text, ())).cuts)


def _plan_views(value: UnreadObject, limits: MaskingSettings, plan_long: PlanText) -> ViewPlan:
    """Examine only members that are long enough to contain a long string; do not even read the others."""
    spots: list[tuple[int, int, Long]] = []
    rest: list[Raw] = [value.view]
    while rest:
        view = rest.pop()
        if not may_hold_long(view, limits.max_chars):
            continue  # to find half a million members would hold everything else up for a tenth of a second
        members = deepjson.children(view)
        inside = members.items() if isinstance(members, dict) else enumerate(members)
        for key, item in inside:
            if deepjson.size(item) <= limits.max_chars:
                continue
            if memoryview(item)[0] != _QUOTE:
                rest.append(item)
            elif not (isinstance(members, dict) and _is_blob(_kind_members(members), key)):
                long = plan_long(deepjson.decode_string(item))
                if long is not None:
                    start = deepjson.start(item, value.view)
                    spots.append((start, start + deepjson.size(item), long))
    return ViewPlan(value, tuple(sorted(spots, key=lambda spot: spot[0])))


def _kind_members(members: Mapping[str, Raw]) -> JsonObject:
    """Return the members that describe the kind of a block. Called once for each long member; no other is read."""
    return {
        name: deepjson.decode_deep(bytes(members[name])) if deepjson.size(members[name]) <= KIND_BYTES else None
        for name in KIND_NAMES
        if name in members
    }


def _applied_to_views(plan: ViewPlan, shown: Mapping[str, str]) -> JsonValue:
    raw = memoryview(plan.value.view)
    done = 0
    pieces: list[bytes | memoryview] = []
    for start, end, long in plan.spots:
        text = _render(long, shown)
        if text is not long.text:
            pieces += (raw[done:start], deepjson.encode(text))
            done = end
    return deepjson.decode_members(b"".join((*pieces, raw[done:]))) if pieces else plan.value


def apply(plan: MaskPlan | ViewPlan, shown: Mapping[str, str]) -> JsonValue:
    """Return the value with the text of each cut from `shown`; texts that are not in `shown` stay uncut.

    Only the containers on the path to a change are copied; without changes, the value itself is returned.
    """
    if isinstance(plan, ViewPlan):
        return _applied_to_views(plan, shown)
    copies: dict[int, JsonObject | list[JsonValue]] = {}
    for place, key, long in plan.spots:
        text = _render(long, shown)
        if text is not long.text:
            _copy_container(plan.places, copies, place)[key] = text  # type: ignore[index]  # a key of its container
    root = copies.get(0)
    return root[0] if isinstance(root, list) else plan.value


def is_small(value: JsonValue) -> bool:
    """Return whether `plan` will be done in a few milliseconds; to find out takes less than one."""
    if isinstance(value, UnreadObject):
        return False
    values: list[JsonValue] = [value]
    members = chars = 0
    for item in values:  # the list grows while we go through it
        if isinstance(item, str):
            chars += len(item)
        elif isinstance(item, _CONTAINERS):
            members += len(item)
            if members > SMALL_MEMBERS:
                return False
            values.extend(item.values() if isinstance(item, dict) else item)
    return chars <= SMALL_CHARS


def plan_text(
    text: str, limits: MaskingSettings, goal: str = "", check: Callable[[], None] = no_deadline
) -> Long | None:
    """Return how to shorten `text`; None if it is short enough, or would not get shorter.

    When `check` raises TimeoutError, its head and tail stay.
    """
    if len(text) <= limits.max_chars:
        return None
    if deepjson.is_container(text):
        return _plan_json(text, limits, goal, check)
    chosen = _choose(text, limits, goal, check)
    if chosen is not None:
        return chosen
    return _worth_it(MaskCut.middle(text, limits.head_chars, max(limits.head_chars, len(text) - limits.tail_chars)))


TIGHTER = (2, 4, 8, 16)  # limits are divided by these for the strings of a JSON text, until it fits
SHARE_TO_TRY = 0.9  # of the characters: markers are longer than their tokens say
CHOICES = 4
_PLAIN = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)


def _choose(text: str, limits: MaskingSettings, goal: str, check: Callable[[], None]) -> MaskCut | None:
    """Return the records, or lines, that stay within the limits; None if there is nothing to choose by, or no time."""
    budget = min(limits.max_chars, limits.head_chars + limits.tail_chars)
    if read_mask(text) is not None or not MIN_CHARS <= len(text) <= MAX_CHOSEN_CHARS:
        return None
    try:
        before = tokens.count(text)
        room = SHARE_TO_TRY * budget * before / len(text)
        kind = type_of(Origin(), text)
        for _ in range(CHOICES):
            question = Question(text, goal, kind, _PLAIN, room=max(1, int(room)))
            found = fit(question, check, tokens_before=before, is_hurried=True)
            if found is None or not found.cuts or not found.has_choice:
                return None
            cut = MaskCut(text, tuple(found.gaps(text)), goal=goal)
            if cut.chars <= budget + MARKER_CHARS:
                return cut if cut.saving > 0 else None
            room *= SHARE_TO_TRY * budget / cut.chars
    except TimeoutError:
        return None
    return None


def _worth_it(cut: MaskCut) -> MaskCut | None:
    if cut.saving <= 0:
        return None
    # The gap would hide only our marker: the text is masked already.
    gap = cut.gaps[0]
    hidden = cut.text[gap.start : min(gap.end, gap.start + MARKER_CHARS)]
    return None if str(read_mask(hidden)) == hidden else cut


def _plan_json(text: str, limits: MaskingSettings, goal: str, check: Callable[[], None]) -> Long | None:
    """Shorten a JSON text so that it stays JSON.

    It is written as a table if it fits then. Else its long strings are shortened, also those below the limit if the
    text fits by that. If strings are not what makes it long, its records are chosen; where that cannot be, members go
    from the middle of the container that holds both the head and the tail.
    """
    if len(text) <= MAX_TABLE_CHARS and (table := write_table(text)) and len(table(_ANY_ID)) <= limits.max_chars:
        return MaskCut(text, (), is_table=True)
    document = _document(text, limits)
    most = int((1 + SLACK_SHARE) * limits.max_chars)
    if (document and document.chars <= most) or read_mask(text) is not None:
        return document
    for divisor in TIGHTER:
        shorter = _document(text, _divide(limits, divisor))
        if shorter is not None and shorter.chars <= most:
            return shorter
    chosen = _choose(text, limits, goal, check)
    if chosen is not None and deepjson.is_json(chosen.render(_ANY_ID)):
        return chosen
    middle = middle_members(text, limits.head_chars, limits.tail_chars)
    cut = None if middle is None else _worth_it(MaskCut.middle(text, *middle))
    return cut if cut is not None and deepjson.is_json(cut.render(_ANY_ID)) else document


def _divide(limits: MaskingSettings, divisor: int) -> MaskingSettings:
    sizes = ("max_chars", "head_chars", "tail_chars")
    return limits.model_copy(update={name: getattr(limits, name) // divisor for name in sizes})


def _document(text: str, limits: MaskingSettings) -> Document | None:
    found = tuple(_tokens(text, limits))
    return Document(text, found) if found else None


def _tokens(text: str, limits: MaskingSettings) -> Iterator[tuple[int, int, Long]]:
    for start, end in long_values(text, limits.max_chars):
        inside = deepjson.decode_deep(text[start:end])
        long = plan_text(inside, limits) if isinstance(inside, str) else None
        if isinstance(long, MaskCut):
            long = replace(long, limits=limits)
        if long is not None:
            yield start, end, long


def _render(long: Long, shown: Mapping[str, str]) -> str:
    if isinstance(long, MaskCut):
        return shown.get(long.text, long.text)
    pieces: list[str] = []
    done = 0
    for start, end, inside in long.tokens:
        text = _render(inside, shown)
        if text is inside.text:
            continue
        token = json.dumps(text, ensure_ascii=long.text.isascii())
        if len(token) < end - start:
            pieces += (long.text[done:start], token)
            done = end
    return "".join((*pieces, long.text[done:])) if pieces else long.text


def _cuts(long: Long) -> Iterator[MaskCut]:
    if isinstance(long, MaskCut):
        yield long
    else:
        for _, _, inside in long.tokens:
            yield from _cuts(inside)


def _has_long(value: JsonValue, max_chars: int) -> bool:
    rest: list[JsonValue] = [[value]]
    while rest:
        container = rest.pop()
        for item in container.values() if isinstance(container, dict) else container:  # type: ignore[union-attr]
            if isinstance(item, str):
                if len(item) > max_chars:
                    return True
            elif isinstance(item, _CONTAINERS):
                rest.append(item)
    return False


def _walk(value: JsonValue, max_chars: int) -> tuple[tuple[Place, ...], list[tuple[int, str | int, str]]]:
    """Return every container below `value`, and every string longer than `max_chars`, without recursion."""
    places: list[Place] = [([value], -1, 0)]
    strings: list[tuple[int, str | int, str]] = []
    for index, (container, _, _) in enumerate(places):  # the list grows while we go through it
        items = container.items() if isinstance(container, dict) else enumerate(container)  # type: ignore[arg-type]
        for key, item in items:
            if isinstance(item, str):
                if len(item) > max_chars and not _is_blob(container, key):
                    strings.append((index, key, item))
            elif isinstance(item, _CONTAINERS):
                places.append((item, index, key))
    return tuple(places), strings


def _is_blob(block: JsonValue, key: str | int) -> bool:
    """Return whether it is the base64 text of an image, a sound or an embedded resource, which cannot be cut."""
    match block, key:
        case (({"mimeType": _} | {"type": "image" | "audio"}), "data"):
            return True
        case (({"mimeType": _} | {"uri": _}), "blob"):
            return True
    return False


def _copy_container(
    places: tuple[Place, ...], copies: dict[int, JsonObject | list[JsonValue]], index: int
) -> JsonObject | list[JsonValue]:
    """Return our own copy of a container, inside our own copies of all that is around it."""
    new: list[int] = []
    at = index
    while at >= 0 and at not in copies:
        container = places[at][0]
        copies[at] = dict(container) if isinstance(container, dict) else list(container)  # type: ignore[arg-type]
        new.append(at)
        at = places[at][1]
    for at in new:
        _, around, key = places[at]
        if around >= 0:
            copies[around][key] = copies[at]  # type: ignore[index]  # a key of its container
    return copies[index]
