"""Single settings in a client's file: set, and brought back to what they were before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.editing import check_rest
from kimi_proxy.features.editing.client_files import TextFormat, split_bom

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SettingsKeys:
    """Values by the path of their table: `{("env",): {"ANTHROPIC_BASE_URL": …}}`; None for a key that must be absent.

    Every result is read again to make sure that the rest of the file still says the same.
    """

    format: TextFormat
    values: Mapping[Path, Mapping[str, JsonValue]]

    def done(self, text: str) -> str:
        """Return `text` with the values in it. Raise FileRefused if they cannot be written there."""
        mark, plain = split_bom(text)
        changed = plain
        for place, value in self._places():
            changed = self._with(changed, place, value, plain)
        check_rest(plain, changed, self._rest)
        for place, value in self._places():
            if self._value(changed, place) != value:
                raise FileRefused(f"{'.'.join(place)} cannot be set there: set it by hand")
        return mark + changed

    def undone(self, text: str, before: str) -> str:
        """Return `text` with what `before` had in place of the values; tables that we created go if they are empty."""
        (mark, plain), (_, old) = split_bom(text), split_bom(before)
        changed = plain
        for place, _ in self._places():
            changed = self._with(changed, place, self._value(old, place), old)
        check_rest(plain, changed, self._rest)
        return mark + changed

    def _places(self) -> Iterator[tuple[Path, JsonValue]]:
        for path, values in self.values.items():
            for key, value in values.items():
                yield (*path, key), value

    def _with(self, text: str, place: Path, value: object, old: str) -> str:
        """Return `text` with `value` at `place`; if it is None, without it and without tables that `old` lacks."""
        if isinstance(value, str | bool | int | float):
            return self.format.merge(text, place[:-1], {place[-1]: value})
        if value is not None:
            raise FileRefused(f"{'.'.join(place)} holds more than one value: change it by hand")
        if self._value(text, place) is None:
            return text
        text = self.format.remove(text, place)
        for depth in range(len(place) - 1, 0, -1):
            table = place[:depth]
            if self._value(text, table) != {} or self._value(old, table) is not None:
                break
            text = self.format.remove(text, table)
        return text

    def _value(self, text: str, place: Path) -> object:
        at = self.format.load(text)
        for key in place:
            at = at.get(key) if isinstance(at, dict) else None
        return at

    def _rest(self, text: str) -> object:
        rest = self.format.load(text)
        for place, _ in self._places():
            rest = _pruned(rest, place)
        return rest


def _pruned(at: object, place: Path) -> object:
    """Return `at` without what is at `place`, and without the tables on the way that are empty then."""
    key, *deeper = place
    if not isinstance(at, dict) or key not in at:
        return at
    inner = _pruned(at[key], tuple(deeper)) if deeper else None
    gone = not deeper or inner == {}
    return {name: inner if name == key else value for name, value in at.items() if name != key or not gone}
