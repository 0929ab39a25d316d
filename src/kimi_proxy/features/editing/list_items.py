"""Items of ours in lists of a client's JSON file: appended, and taken out again."""

from collections.abc import Mapping
from dataclasses import dataclass

from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.editing import check_rest, jsonc
from kimi_proxy.features.editing.client_files import split_bom

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListItems:
    """One item for each list: `{("hooks", "PostToolUse"): {…}}`. Items with `mark` anywhere in them are ours."""

    items: Mapping[Path, JsonValue]
    mark: str

    def done(self, text: str) -> str:
        """Return `text` with the items in their lists, each once. Raise FileRefused if that cannot be written."""
        mark, plain = split_bom(text)
        changed = plain
        for path, item in self.items.items():
            if self._ours(changed, path) != [item]:
                changed = jsonc.append(self._removed(changed, path), path, item)
        check_rest(plain, changed, self._rest)
        return mark + changed

    def undone(self, text: str, before: str) -> str:
        """Return `text` without our items, and without lists and objects that `before` lacks and that are empty."""
        (mark, plain), (_, old) = split_bom(text), split_bom(before)
        changed = plain
        for path in self.items:
            changed = self._removed(changed, path)
            for depth in range(len(path), 0, -1):
                if jsonc.get(changed, path[:depth]) not in ([], {}) or jsonc.get(old, path[:depth]) is not None:
                    break
                changed = jsonc.remove(changed, path[:depth])
        check_rest(plain, changed, self._rest)
        return mark + changed

    def _removed(self, text: str, path: Path) -> str:
        for item in self._ours(text, path):
            text = jsonc.remove_item(text, path, item)
        return text

    def _ours(self, text: str, path: Path) -> list[JsonValue]:
        found = jsonc.get(text, path)
        return [item for item in found if self.mark in repr(item)] if isinstance(found, list) else []

    def _rest(self, text: str) -> JsonValue:
        """Return what the file says without our items, and without what is empty."""
        return _without(jsonc.load(text), tuple(self.items), self.mark)


def _without(value: JsonValue, paths: tuple[Path, ...], mark: str) -> JsonValue:
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
