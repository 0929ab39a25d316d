"""The servers that a client's configuration names: one entry is ours, the others are none of our business."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.editing import jsonc, toml, yaml

# What belongs to one way to reach a server and disturbs the other.
OVER_HTTP = ("url", "headers", "http_headers", "env_http_headers", "bearer_token_env_var")
OVER_STDIO = ("command", "args", "cwd", "env", "env_vars")

BOM = "\ufeff"


class Format(Protocol):
    """How a client writes its servers down."""

    def entry(self, text: str) -> object:
        """What stands under our name; None if nothing does."""

    def others(self, text: str) -> object:
        """Everything else that the file says."""

    def put(self, text: str, entry: JsonObject, dropped: Sequence[str]) -> str: ...

    def remove(self, text: str) -> str: ...


def with_entry(form: Format, text: str, entry: JsonObject) -> str:
    """`text` with `entry` under our name; keys that the user has added to it stay."""
    mark, text = _unmarked(text)
    dropped = OVER_STDIO if "url" in entry else OVER_HTTP
    changed = form.put(text, entry, dropped)
    _check(form, text, changed)
    now = form.entry(changed)
    if not isinstance(now, dict) or {key: now.get(key) for key in entry} != entry or set(now) & set(dropped):
        raise FileRefused("our entry cannot be written there: add it by hand")
    return mark + changed


def without_entry(form: Format, text: str) -> str:
    mark, text = _unmarked(text)
    changed = form.remove(text)
    _check(form, text, changed)
    if form.entry(changed) is not None:
        raise FileRefused("our entry cannot be removed there: remove it by hand")
    return mark + changed


def restored(form: Format, text: str, previous: object) -> str:
    """`text` with what was under our name before us, or with nothing there."""
    gone = without_entry(form, text)
    if not isinstance(previous, dict):
        return gone
    mark, gone = _unmarked(gone)
    changed = form.put(gone, previous, ())
    _check(form, gone, changed)
    return mark + changed


def entry(form: Format, text: str) -> object:
    return form.entry(_unmarked(text)[1])


def _check(form: Format, before: str, after: str) -> None:
    """Whatever the editing did: the file must still say what it said."""
    try:
        same = repr(form.others(before)) == repr(form.others(after))  # the order of keys counts, and NaN is itself
    except FileRefused as e:
        form.others(before)  # if it never could be read, that is what must be told
        raise FileRefused(f"a change would break it ({e}): change it by hand") from e
    if not same:
        raise FileRefused("a change would alter something else in it: change it by hand")


def _unmarked(text: str) -> tuple[str, str]:
    return (BOM, text[1:]) if text.startswith(BOM) else ("", text)


@dataclass(frozen=True, slots=True)
class JsonServers:
    """`{"mcpServers": {"pruner": {…}}}`, with comments or without."""

    key: str
    name: str

    def entry(self, text: str) -> object:
        return None if jsonc.is_blank(text) else jsonc.get(text, (self.key, self.name))

    def others(self, text: str) -> object:
        root = {} if jsonc.is_blank(text) else jsonc.parse(text).value
        return _others_of(root, self.key, self.name)

    def put(self, text: str, entry: JsonObject, dropped: Sequence[str]) -> str:
        path = (self.key, self.name)
        if not isinstance(self.entry(text), dict):
            return jsonc.put(text, path, entry)
        for key in dropped:
            text = jsonc.remove(text, (*path, key))
        for key, value in entry.items():
            if jsonc.get(text, (*path, key)) != value:
                text = jsonc.put(text, (*path, key), value)
        return text

    def remove(self, text: str) -> str:
        return text if jsonc.is_blank(text) else jsonc.remove(text, (self.key, self.name))


@dataclass(frozen=True, slots=True)
class TomlServers:
    """`[mcp_servers.pruner]`."""

    key: str
    name: str

    def entry(self, text: str) -> object:
        servers = toml.parse(text).get(self.key)
        return servers.get(self.name) if isinstance(servers, dict) else None

    def others(self, text: str) -> object:
        return _others_of(toml.parse(text), self.key, self.name)

    def put(self, text: str, entry: JsonObject, dropped: Sequence[str]) -> str:
        return toml.put(text, (self.key, self.name), entry, dropped)

    def remove(self, text: str) -> str:
        return toml.remove(text, (self.key, self.name))


@dataclass(frozen=True, slots=True)
class YamlServers:
    """`mcpServers:` with `- name: pruner` in its list; a new file begins with `start`."""

    key: str
    name: str
    start: str

    def entry(self, text: str) -> object:
        found = [item for item in self._listed(text) if isinstance(item, dict) and item.get("name") == self.name]
        return {key: value for key, value in found[0].items() if key != "name"} if found else None

    def others(self, text: str) -> object:
        said = self._said(text)
        listed = [item for item in self._listed(text) if not isinstance(item, dict) or item.get("name") != self.name]
        return {**said, self.key: listed} if isinstance(said, dict) else said

    def put(self, text: str, entry: JsonObject, dropped: Sequence[str]) -> str:
        if yaml.parse(text) is None:
            text += ("" if not text or text.endswith("\n") else "\n") + self.start
        return yaml.put(text, self.key, self.name, entry, dropped)

    def remove(self, text: str) -> str:
        return yaml.remove(text, self.key, self.name)

    def _listed(self, text: str) -> list[object]:
        said = self._said(text)
        listed = said.get(self.key) if isinstance(said, dict) else None
        return list(listed) if isinstance(listed, list) else []

    def _said(self, text: str) -> object:
        said = yaml.parse(text)
        return yaml.parse(self.start) if said is None else said


def _others_of(root: object, key: str, name: str) -> object:
    if not isinstance(root, dict):
        return root
    servers = root.get(key)
    kept = {k: v for k, v in servers.items() if k != name} if isinstance(servers, dict) else servers or {}
    return {**{k: v for k, v in root.items() if k != key}, key: kept}


BEGIN = "<!-- kimi-proxy: begin -->"
END = "<!-- kimi-proxy: end -->"


def put(text: str, block: str) -> str:
    """`text` with `block`: in its place if it is there, else at the end."""
    newline = _newline(text)
    marked = newline.join((BEGIN, *block.strip("\n").split("\n"), END))
    place = _place(text)
    if place:
        return text[: place[0]] + marked + text[place[1] :]
    end = "" if not text or text.endswith("\n") else newline
    gap = newline if text.strip() and not (text + end).endswith(newline * 2) else ""
    return text + end + gap + marked + newline


def remove(text: str) -> str:
    """`text` without our block, and without the blank line that we put before it."""
    place = _place(text)
    if place is None:
        return text
    newline = _newline(text)
    before, after = text[: place[0]], text[place[1] :].removeprefix(newline)
    if before.endswith(newline * 2) and (not after or after.startswith(newline)):
        before = before.removesuffix(newline)
    return before + after


def _place(text: str) -> tuple[int, int] | None:
    begins, ends = text.count(BEGIN), text.count(END)
    if begins == ends == 0:
        return None
    if (begins, ends) != (1, 1) or text.index(END) < text.index(BEGIN):
        raise FileRefused(f"{BEGIN} and {END} must stand there once, in this order")
    return text.index(BEGIN), text.index(END) + len(END)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
