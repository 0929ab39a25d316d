"""Settings that can change at runtime: applied at once, and written back to their file."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol, TypedDict

from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config import Config, FileSettings, parse
from kimi_proxy.core.config.visible import visible_settings
from kimi_proxy.core.errors import ConfigError, FileRefused, InvalidParams
from kimi_proxy.core.json import JsonValue, OpenObject
from kimi_proxy.features.editing import toml
from kimi_proxy.proxy import private_files
from kimi_proxy.services.events import Publish, no_op

EVENT = "settings_event"
# Providers, models and MCP servers have routes of their own.
SECTIONS = tuple(name for name in FileSettings.model_fields if name not in ("mcp", "providers", "models"))
OBSERVE = "sanitizer.observe"  # the switch; in the file it is `mode` of [sanitizer]

ProblemCode = Literal["no_file", "file_refused", "file_unreadable"]


@dataclass(slots=True)
class ObserveMode:
    """While it is on, no request is changed and no original is stored; potential savings are counted."""

    is_on: bool = False


class SettingsBody(TypedDict):
    """The settings in force, those that the caller may see; secrets are only reported as set or not set."""

    file: str | None  # null for members of a team
    switches: dict[str, bool]
    lists: dict[str, list[str]]
    secrets: dict[str, bool]  # empty for members
    settings: OpenObject


class ChangedSettingsBody(SettingsBody):
    saved: bool
    problem: str | None
    problem_code: ProblemCode | None


class SwitchedFields(TypedDict):
    """The fields of a `settings_event`."""

    switches: dict[str, bool]
    lists: dict[str, list[str]]


class Switchable(Protocol):
    """Something that can be switched while it works."""

    is_on: bool


class NameList(Protocol):
    """Names that can be changed while they are in use."""

    names: tuple[str, ...]


@dataclass(slots=True)
class Names:
    """A list of names, as the settings have it until people change it."""

    names: tuple[str, ...] = ()


Wanted = Mapping[str, bool | Sequence[str]]  # of switches and lists, by their names in the file


class LiveSettings:
    def __init__(
        self,
        config: Config,
        switches: Mapping[str, Switchable],
        env: Mapping[str, str],
        publish: Publish = no_op,
        replace: Callable[[Path, bytes], None] = private_files.replace,
        lists: Mapping[str, NameList] = MappingProxyType({}),
    ) -> None:
        self._config = config
        self._switches = switches
        self._lists = lists
        self._env = env
        self._publish = publish
        self._replace = replace
        self._writing = asyncio.Lock()

    def to_json(self, who: Caller) -> SettingsBody:
        """Return the current settings that this person may see; for secrets, only whether they are set."""
        return {
            "file": str(self._config.file) if self._config.file and who.is_admin else None,
            "switches": self._values(),
            "lists": self._names(),
            "secrets": self._secrets() if who.is_admin else {},
            "settings": visible_settings(self._config, SECTIONS, who.is_admin),
        }

    async def change(self, who: Caller, wanted: Wanted) -> ChangedSettingsBody:
        """Apply the change at once, then save it; `problem` says why it would be lost at the next start."""
        for name, value in wanted.items():
            if name not in (self._switches if isinstance(value, bool) else self._lists):
                known = ", ".join((*self._switches, *(f"{each} (a list)" for each in self._lists)))
                raise InvalidParams(name, f"only these can be changed at runtime: {known}")
        async with self._writing:
            self.switch(who, wanted)
            problem = await asyncio.to_thread(self._write, wanted)
        code, text = problem or (None, None)
        return {**self.to_json(who), "saved": problem is None, "problem": text, "problem_code": code}

    def switch(self, who: Caller, wanted: Wanted) -> None:
        """Switch until the next start, on every server that shares the store."""
        self._apply(wanted)
        self._publish(who, EVENT, SwitchedFields(switches=self._values(), lists=self._names()))

    def _apply(self, wanted: Mapping[str, object]) -> None:
        for name, value in wanted.items():
            if isinstance(value, bool) and name in self._switches:
                self._switches[name].is_on = value
            elif isinstance(value, list | tuple) and name in self._lists:
                self._lists[name].names = tuple(map(str, value))

    def follow(self, event: str, fields: Mapping[str, object]) -> None:
        """Switch what another server has switched; a restart reads the file again."""
        for changed in (fields.get("switches"), fields.get("lists")) if event == EVENT else ():
            if isinstance(changed, Mapping):
                self._apply(changed)

    def _values(self) -> dict[str, bool]:
        return {name: switch.is_on for name, switch in self._switches.items()}

    def _names(self) -> dict[str, list[str]]:
        return {name: list(listed.names) for name, listed in self._lists.items()}

    def _secrets(self) -> dict[str, bool]:
        """Return for each environment variable that holds one whether it is set."""
        config = self._config
        keys = {
            p.key_variable: config.provider_keys.get(name) for name, p in config.providers.items() if p.key_variable
        }
        known = {
            **keys,
            "KIMI_PROXY_TOKEN": config.token,
            "KIMI_PROXY_OIDC_CLIENT_SECRET": config.oidc_client_secret,
            "DEEPINFRA_API_KEY": config.deepinfra_api_key,
        }
        return {name: bool(secret) or bool(self._env.get(name)) for name, secret in known.items()}

    def _write(self, wanted: Wanted) -> tuple[ProblemCode, str] | None:
        """Write the file; return an error code and a message if that fails."""
        file = self._config.file
        if file is None:
            return "no_file", "there is no configuration file: write one, and start again"
        try:
            before = (private_files.read(file) or b"").decode("utf-8")
            after = self._edit_file(before, wanted)
            if after != before:
                self._replace(file, after.encode())
        except FileRefused as e:
            return "file_refused", str(e)
        except (ConfigError, UnicodeDecodeError) as e:
            return "file_unreadable", str(e)
        return None

    def _edit_file(self, text: str, wanted: Wanted) -> str:
        for name, value in wanted.items():
            text = _put(text, name, value)
        parse(text, self._env, self._config.home)  # never leave a file behind that the next start refuses
        return text


def _put(text: str, name: str, wanted: bool | Sequence[str]) -> str:
    *tables, key = name.split(".")
    table = tuple(tables)
    value: JsonValue = wanted if isinstance(wanted, bool) else list(wanted)
    if name == OBSERVE:
        key = "mode"
        value = "observe" if wanted else "on"
    try:
        return toml.merge(text, table, {key: value})
    except FileRefused:
        # If only its subtables are written, the table itself can be added.
        added = toml.merge("", table, {key: value})
        joined = f"{text.rstrip()}\n\n{added}"
        with suppress(FileRefused):
            toml.load(joined)
            return joined
        raise
