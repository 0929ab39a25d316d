"""Our part of a client's files: one entry among its MCP servers, one block in its instructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.features.editing import check_rest, gap_before, newline_of

# Keys of one transport that would contradict the other.
OVER_HTTP = (
    *("url", "httpUrl", "headers", "http_headers", "env_http_headers"),
    *("bearer_token_env_var", "bearerTokenEnvVar"),
)
OVER_STDIO = ("command", "args", "cwd", "env", "env_vars", "environment")

BOM = "\ufeff"
BEGIN = "<!-- kimi-proxy: begin -->"
END = "<!-- kimi-proxy: end -->"


class ServersFile(Protocol):
    """A file in which a client lists its MCP servers. Both methods raise FileRefused rather than damage it."""

    def with_entry(self, text: str, entry: JsonObject) -> str:
        """Return `text` with `entry` as our server."""

    def restored(self, text: str, before: str) -> str:
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
    """A file that holds more than our entry: `{"mcpServers": {"pruner": {…}}}` or `[mcp_servers.pruner]`.

    Only the text of our entry changes, and every result is read again to make sure that the rest still says the same.
    """

    format: TextFormat
    key: str
    name: str

    def with_entry(self, text: str, entry: JsonObject) -> str:
        """Return `text` with `entry` under our name; keys that the user has added to it stay."""
        dropped = OVER_HTTP if "command" in entry else OVER_STDIO
        changed = self._merged(text, entry, dropped)
        now = self.entry(changed)
        if not isinstance(now, dict) or {key: now.get(key) for key in entry} != entry or set(now) & set(dropped):
            raise FileRefused("our entry cannot be written there: add it by hand")
        return changed

    def restored(self, text: str, before: str) -> str:
        previous, removed = self.entry(before), self.without_entry(text)
        return self._merged(removed, previous, ()) if isinstance(previous, dict) else removed

    def without_entry(self, text: str) -> str:
        mark, plain = split_bom(text)
        changed = self._checked(plain, self.format.remove(plain, (self.key, self.name)))
        if self.entry(changed) is not None:
            raise FileRefused("our entry cannot be removed there: remove it by hand")
        return mark + changed

    def entry(self, text: str) -> object:
        """Return what is under our name; None if nothing is."""
        root = self.format.load(split_bom(text)[1])
        servers = root.get(self.key) if isinstance(root, dict) else None
        return servers.get(self.name) if isinstance(servers, dict) else None

    def others(self, text: str) -> object:
        """Return everything else that the file says."""
        root = self.format.load(text)
        if not isinstance(root, dict):
            return root
        servers = root.get(self.key)
        kept = {k: v for k, v in servers.items() if k != self.name} if isinstance(servers, dict) else servers or {}
        return {**{k: v for k, v in root.items() if k != self.key}, self.key: kept}

    def _merged(self, text: str, entry: JsonObject, dropped: Sequence[str]) -> str:
        mark, plain = split_bom(text)
        return mark + self._checked(plain, self.format.merge(plain, (self.key, self.name), entry, dropped))

    def _checked(self, before: str, after: str) -> str:
        """Return `after`. Raise FileRefused if it does not say the same as `before` but for our entry."""
        check_rest(before, after, self.others)
        return after


@dataclass(frozen=True, slots=True)
class OwnTextFile:
    """A file of ours alone, known by `mark` in it: written whole, and refused if it holds something else."""

    content: str
    mark: str

    def done(self, text: str) -> str:
        self._refuse_others(text)
        return self.content

    def undone(self, text: str, before: str) -> str:
        self._refuse_others(text)
        return before

    def _refuse_others(self, text: str) -> None:
        if text and self.mark not in text:
            raise FileRefused("it was not written by kimi-proxy: change it by hand, or move it away")


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
    before, after = text[: place[0]], text[place[1] :].removeprefix(newline)
    if before.endswith(newline * 2) and (not after or after.startswith(newline)):
        before = before.removesuffix(newline)
    return before + after


def _block_place(text: str) -> tuple[int, int] | None:
    begins, ends = text.count(BEGIN), text.count(END)
    if begins == ends == 0:
        return None
    if (begins, ends) != (1, 1) or text.index(END) < text.index(BEGIN):
        raise FileRefused(f"{BEGIN} and {END} must stand there once, in this order")
    return text.index(BEGIN), text.index(END) + len(END)


def split_bom(text: str) -> tuple[str, str]:
    """Return the byte order mark, if there is one, and the rest."""
    return (BOM, text[1:]) if text.startswith(BOM) else ("", text)
