"""Our part of a client's files: an entry among its MCP servers, single settings, items of lists, a block of text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.editing import check_rest, gap_before, jsonc, newline_of

# Keys of one transport that would contradict the other.
OVER_HTTP = (
    "url",
    "httpUrl",
    "headers",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "bearerTokenEnvVar",
)
OVER_STDIO = ("command", "args", "cwd", "env", "env_vars", "environment")

BOM = "\ufeff"
BEGIN = "<!-- kimi-proxy: begin -->"
END = "<!-- kimi-proxy: end -->"

KeyPath = tuple[str, ...]  # of a value in a file, from the outermost table on


class ServersFile(Protocol):
    """A file in which a client lists its MCP servers. Both methods raise FileRefused rather than damage it."""

    def with_entry(self, text: str, entry: JsonObject) -> str:
        """Return `text` with `entry` as our server."""

    def restore(self, text: str, before: str) -> str:
        """Return `text` with the entry of our name that `before` had, or without one."""


class TextFormat(Protocol):
    """A format that can be edited in place; the modules `jsonc` and `toml` are such formats."""

    def load(self, text: str) -> object: ...

    def merge(
        self, text: str, path: tuple[str, ...], values: Mapping[str, JsonValue], dropped: Sequence[str] = ()
    ) -> str:
        """Return `text` with `values` in the object at `path`, and without the keys in `dropped`."""

    def remove(self, text: str, path: tuple[str, ...]) -> str: ...


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file with more than our entry: `{"mcpServers": {"pruner": {…}}}` or `[mcp_servers.pruner]`.

    Only the text of our entry changes, and every result is parsed again to verify that the rest is unchanged.
    """

    format: TextFormat
    key: str
    name: str

    def with_entry(self, text: str, entry: JsonObject) -> str:
        """Return `text` with `entry` under our name; keys that the user has added to it stay."""
        dropped = OVER_HTTP if "command" in entry else OVER_STDIO
        changed = self._merge(text, entry, dropped)
        now = self.entry(changed)
        if not isinstance(now, dict) or {key: now.get(key) for key in entry} != entry or set(now) & set(dropped):
            raise FileRefused("cannot add our entry: add it by hand")
        return changed

    def restore(self, text: str, before: str) -> str:
        previous = self.entry(before)
        removed = self.without_entry(text)
        return self._merge(removed, previous, ()) if isinstance(previous, dict) else removed

    def without_entry(self, text: str) -> str:
        mark, plain = split_bom(text)
        changed = self._check(plain, self.format.remove(plain, (self.key, self.name)))
        if self.entry(changed) is not None:
            raise FileRefused("cannot remove our entry: remove it by hand")
        return mark + changed

    def entry(self, text: str) -> object:
        """Return the value under our name; None if there is none."""
        root = self.format.load(split_bom(text)[1])
        servers = root.get(self.key) if isinstance(root, dict) else None
        return servers.get(self.name) if isinstance(servers, dict) else None

    def others(self, text: str) -> object:
        """Return everything else in the file."""
        root = self.format.load(text)
        if not isinstance(root, dict):
            return root
        servers = root.get(self.key)
        kept = {k: v for k, v in servers.items() if k != self.name} if isinstance(servers, dict) else servers or {}
        return {**{k: v for k, v in root.items() if k != self.key}, self.key: kept}

    def _merge(self, text: str, entry: JsonObject, dropped: Sequence[str]) -> str:
        mark, plain = split_bom(text)
        return mark + self._check(plain, self.format.merge(plain, (self.key, self.name), entry, dropped))

    def _check(self, before: str, after: str) -> str:
        """Return `after`. Raise FileRefused unless it equals `before` apart from our entry."""
        check_rest(before, after, self.others)
        return after


@dataclass(frozen=True, slots=True)
class SettingsKeys:
    """Values by the path of their table: `{("env",): {"ANTHROPIC_BASE_URL": …}}`; None for a key that must be absent.

    Those of `unless_set` are written only where the user has none.

    Every result is parsed again to verify that the rest of the file is unchanged.
    """

    format: TextFormat
    values: Mapping[KeyPath, Mapping[str, JsonValue]]
    unless_set: frozenset[str] = frozenset()

    def apply(self, text: str) -> str:
        """Return `text` with the values in it. Raise FileRefused if they cannot be written there."""
        mark, plain = split_bom(text)
        changed = plain
        wanted = [(place, value) for place, value in self._places() if not self._is_the_users(plain, place)]
        for place, value in wanted:
            changed = self._with(changed, place, value, plain)
        check_rest(plain, changed, self._rest)
        for place, value in wanted:
            if self._value(changed, place) != value:
                raise FileRefused(f"{'.'.join(place)} cannot be set: set it by hand")
        return mark + changed

    def revert(self, text: str, before: str) -> str:
        """Return `text` with what `before` had in place of the values; tables that we created go if they are empty."""
        (mark, plain) = split_bom(text)
        (_, old) = split_bom(before)
        changed = plain
        for place, _ in self._places():
            changed = self._with(changed, place, self._value(old, place), old)
        check_rest(plain, changed, self._rest)
        return mark + changed

    def _is_the_users(self, text: str, place: KeyPath) -> bool:
        return place[-1] in self.unless_set and self._value(text, place) is not None

    def _places(self) -> Iterator[tuple[KeyPath, JsonValue]]:
        for path, values in self.values.items():
            for key, value in values.items():
                yield (*path, key), value

    def _with(self, text: str, place: KeyPath, value: object, old: str) -> str:
        """Return `text` with `value` at `place`; if it is None, without it and without tables that `old` lacks."""
        if isinstance(value, str | bool | int | float):
            return self.format.merge(text, place[:-1], {place[-1]: value})
        if value is not None:
            raise FileRefused(f"{'.'.join(place)} has more than one value: edit it by hand")
        if self._value(text, place) is None:
            return text
        text = self.format.remove(text, place)
        for depth in range(len(place) - 1, 0, -1):
            table = place[:depth]
            if self._value(text, table) != {} or self._value(old, table) is not None:
                break
            text = self.format.remove(text, table)
        return text

    def _value(self, text: str, place: KeyPath) -> object:
        at = self.format.load(text)
        for key in place:
            at = at.get(key) if isinstance(at, dict) else None
        return at

    def _rest(self, text: str) -> object:
        rest = self.format.load(text)
        for place, _ in self._places():
            rest = _prune_empty(rest, place)
        return rest


def _prune_empty(at: object, place: KeyPath) -> object:
    """Return `at` without the value at `place`, and without tables on its path that are then empty."""
    key, *deeper = place
    if not isinstance(at, dict) or key not in at:
        return at
    inner = _prune_empty(at[key], tuple(deeper)) if deeper else None
    gone = not deeper or inner == {}
    return {name: inner if name == key else value for name, value in at.items() if name != key or not gone}


@dataclass(frozen=True, slots=True)
class ListItems:
    """One item for each list: `{("hooks", "PostToolUse"): {…}}`. Items with `mark` anywhere in them are ours."""

    items: Mapping[KeyPath, JsonValue]
    mark: str

    def apply(self, text: str) -> str:
        """Return `text` with the items in their lists, each once. Raise FileRefused if that cannot be written."""
        mark, plain = split_bom(text)
        changed = plain
        for path, item in self.items.items():
            if self._ours(changed, path) != [item]:
                changed = jsonc.append(self._remove(changed, path), path, item)
        check_rest(plain, changed, self._rest)
        return mark + changed

    def revert(self, text: str, before: str) -> str:
        """Return `text` without our items, and without lists and objects that `before` lacks and that are empty."""
        (mark, plain) = split_bom(text)
        (_, old) = split_bom(before)
        changed = plain
        for path in self.items:
            changed = _without_empty(self._remove(changed, path), path, old)
        check_rest(plain, changed, self._rest)
        return mark + changed

    def _remove(self, text: str, path: KeyPath) -> str:
        for item in self._ours(text, path):
            text = jsonc.remove_item(text, path, item)
        return text

    def _ours(self, text: str, path: KeyPath) -> list[JsonValue]:
        found = jsonc.get(text, path)
        return [item for item in found if self.mark in repr(item)] if isinstance(found, list) else []

    def _rest(self, text: str) -> JsonValue:
        """Return the contents without our items, and without empty containers."""
        return _without(jsonc.load(text), tuple(self.items), self.mark)


def _without(value: JsonValue, paths: tuple[KeyPath, ...], mark: str) -> JsonValue:
    if () in paths and isinstance(value, list):
        return [item for item in value if mark not in repr(item)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, JsonValue] = {}
    for key, one in value.items():
        deeper = tuple(path[1:] for path in paths if path and path[0] == key)
        rest = _without(one, deeper, mark) if deeper else one
        if not deeper or rest not in ([], {}):
            kept[key] = rest
    return kept


@dataclass(frozen=True, slots=True)
class ListValue:
    """One value in a list: `{"permissions": {"allow": ["mcp__pruner__recover_text"]}}`. The user's own copy stays."""

    path: KeyPath
    value: str

    def apply(self, text: str) -> str:
        """Return `text` with the value in the list. Raise FileRefused if that cannot be written."""
        mark, plain = split_bom(text)
        if self._is_in(plain):
            return text
        changed = jsonc.append(plain, self.path, self.value)
        check_rest(plain, changed, self._rest)
        return mark + changed

    def revert(self, text: str, before: str) -> str:
        """Return `text` without the value unless `before` has it, and without what was created for it."""
        (mark, plain) = split_bom(text)
        (_, old) = split_bom(before)
        if self._is_in(old):
            return text
        changed = _without_empty(jsonc.remove_item(plain, self.path, self.value), self.path, old)
        check_rest(plain, changed, self._rest)
        return mark + changed

    def _is_in(self, text: str) -> bool:
        found = jsonc.get(text, self.path)
        return isinstance(found, list) and self.value in found

    def _rest(self, text: str) -> JsonValue:
        return _without(jsonc.load(text), (self.path,), repr(self.value))


def _without_empty(text: str, path: KeyPath, old: str) -> str:
    """Return `text` without the containers on `path` that are empty, and that `old` lacks."""
    for depth in range(len(path), 0, -1):
        if jsonc.get(text, path[:depth]) not in ([], {}) or jsonc.get(old, path[:depth]) is not None:
            break
        text = jsonc.remove(text, path[:depth])
    return text


@dataclass(frozen=True, slots=True)
class OwnTextFile:
    """A file of ours alone, known by `mark` in it: written whole, and refused if it holds something else."""

    content: str
    mark: str

    def apply(self, text: str) -> str:
        self._refuse_others(text)
        return self.content

    def revert(self, text: str, before: str) -> str:
        self._refuse_others(text)
        return before

    def _refuse_others(self, text: str) -> None:
        if text and self.mark not in text:
            raise FileRefused("it was not created by kimi-proxy: edit it by hand, or move it away")


def put_block(text: str, block: str) -> str:
    """Return `text` with our `block`: in its place if it is there, else at the end."""
    newline = newline_of(text)
    marked = newline.join((BEGIN, *block.strip("\n").split("\n"), END))
    place = _block_place(text)
    if place:
        return text[: place[0]] + marked + text[place[1] :]
    return text + gap_before(text) + marked + newline


def remove_block(text: str) -> str:
    """Return `text` without our block, and without the blank line that we put before it."""
    place = _block_place(text)
    if place is None:
        return text
    newline = newline_of(text)
    before = text[: place[0]]
    after = text[place[1] :].removeprefix(newline)
    if before.endswith(newline * 2) and (not after or after.startswith(newline)):
        before = before.removesuffix(newline)
    return before + after


def _block_place(text: str) -> tuple[int, int] | None:
    begins = text.count(BEGIN)
    ends = text.count(END)
    if begins == ends == 0:
        return None
    if (begins, ends) != (1, 1) or text.index(END) < text.index(BEGIN):
        raise FileRefused(f"it must contain {BEGIN} and {END} once each, in this order")
    return text.index(BEGIN), text.index(END) + len(END)


def split_bom(text: str) -> tuple[str, str]:
    """Return the byte order mark, if there is one, and the rest."""
    return (BOM, text[1:]) if text.startswith(BOM) else ("", text)
