"""YAML: our server in its own file, or as one item of the user's list, with every other line unchanged."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.editing import newline_of


@dataclass(frozen=True, slots=True)
class OwnYamlFile:
    """A YAML file that holds nothing but our server: written whole, and refused if it holds anything else."""

    name: str
    variable: str = ""  # the one environment variable that our entry sets

    def with_entry(self, text: str, entry: JsonObject) -> str:
        self._refuse_others(text)
        lines = (f"    {key}: {_flow(value)}\n" for key, value in entry.items())
        return self._head() + "".join(lines)

    def restore(self, text: str, before: str) -> str:
        self._refuse_others(text)
        return before

    def _head(self) -> str:
        return f"name: {self.name}\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: {self.name}\n"

    def _refuse_others(self, text: str) -> None:
        lines = r"(?:type|command|args|url): [^\r\n]*"
        if self.variable:
            lines += rf'|env: \{{"{re.escape(self.variable)}": "(?:[^"\\\r\n]|\\.)*"\}}'
        if text and not re.fullmatch(rf"{re.escape(self._head())}(?:    (?:{lines})\n)+", text):
            raise FileRefused("it contains more than our entry: edit it by hand, or move it away")


@dataclass(frozen=True, slots=True)
class YamlList:
    """A list of servers in the user's file: `mcpServers:` at the left margin, with one `- name: …` per server.

    Lines are added and removed, never changed. Other styles are refused.
    """

    key: str
    name: str

    def with_entry(self, text: str, entry: JsonObject) -> str:
        newline = newline_of(text)
        lines = self._lines(self._remove(text))
        at = self._heading(lines)
        if at is None:
            lines += [f"{self.key}:"]
            at = len(lines) - 1
        elif lines[at].split("#")[0].rstrip() == f"{self.key}: []":
            lines[at] = f"{self.key}:"
        indent = self._indent(lines, at)
        item = [f"{indent}- name: {self.name}", *(f"{indent}  {key}: {_flow(value)}" for key, value in entry.items())]
        return newline.join([*lines[: at + 1], *item, *lines[at + 1 :], ""])

    def restore(self, text: str, before: str) -> str:
        """Return `text` with the item of our name that `before` had, or without one."""
        newline = newline_of(text)
        old = self._lines(before)
        rest = self._remove(text)
        had = self._item(old)
        lines = self._lines(rest)
        at = self._heading(lines)
        was = self._heading(old)
        if at is None:
            return rest
        if had:
            lines[at + 1 : at + 1] = old[had[0] : had[1]]
        elif not self._has_items(lines, at):
            lines[at : at + 1] = [] if was is None else [old[was]]
        return newline.join([*lines, ""]) if lines else ""

    def _remove(self, text: str) -> str:
        lines = self._lines(text)
        newline = newline_of(text)
        found = self._item(lines)
        return text if found is None else newline.join([*lines[: found[0]], *lines[found[1] :], ""])

    def _lines(self, text: str) -> list[str]:
        """Return the lines. Raise FileRefused if the file is of a kind that we do not edit."""
        if "\t" in text or re.search(r"(?m)^(?:---|\.\.\.)\s*$", text.lstrip()[3:]):
            raise FileRefused("it contains tabs or several documents: add our entry by hand")
        lines = text.split(newline_of(text))
        return lines[:-1] if lines[-1] == "" else lines

    def _heading(self, lines: list[str]) -> int | None:
        found = [at for at, line in enumerate(lines) if line.startswith(f"{self.key}:")]
        if not found:
            return None
        value = lines[found[0]].removeprefix(f"{self.key}:").split("#")[0].strip()
        if len(found) > 1 or value not in ("", "[]"):
            raise FileRefused(f"{self.key} is not a list with one item per line: add our entry by hand")
        return found[0]

    def _content(self, lines: list[str], at: int) -> Iterator[tuple[int, str]]:
        """Yield the lines below the heading, without blank ones and comments."""
        for place, line in enumerate(lines[at + 1 :], at + 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if not line.startswith((" ", "-")):
                return
            yield place, line

    def _has_items(self, lines: list[str], at: int) -> bool:
        return next(self._content(lines, at), None) is not None

    def _indent(self, lines: list[str], at: int) -> str:
        first = next((line for _, line in self._content(lines, at)), "  - ")
        if not first.lstrip().startswith("- "):
            raise FileRefused(f"{self.key} is not a list: add our entry by hand")
        return first[: len(first) - len(first.lstrip())]

    def _item(self, lines: list[str]) -> tuple[int, int] | None:
        """Return where the item of our name begins and ends."""
        at = self._heading(lines)
        if at is None:
            return None
        indent = self._indent(lines, at)
        content = list(self._content(lines, at))
        starts = [place for place, line in content if line.startswith(f"{indent}- ")]
        for start in starts:
            end = next((after for after in starts if after > start), content[-1][0] + 1)
            own = [line for place, line in content if start <= place < end]
            name = (re.fullmatch(rf"{indent}[- ] name: *[\"']?{re.escape(self.name)}[\"']?", each) for each in own)
            if any(name):
                return start, max(place for place, _ in content if place < end) + 1
        return None


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+-]*(?::[A-Za-z0-9_./@+-]+)*", re.A)
_NOT_TEXT = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))


def _flow(value: JsonValue) -> str:
    """Return YAML on one line: plain words as they are, the rest as JSON, which YAML understands."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return f"[{', '.join(map(_flow, value))}]" if isinstance(value, list) else json.dumps(value, ensure_ascii=False)
