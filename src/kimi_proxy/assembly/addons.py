"""The addons, in the order in which they observe a request: each is there if its folder is."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import get_args

from kimi_proxy.api.addon import Addon, Given, PersonalFiles
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.config import ADDON_SETTINGS, Config
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.core.errors import StoreUnavailable
from kimi_proxy.features.chat.pipeline import Draft, Stage
from kimi_proxy.services.chat.forms import Forms, ProviderForm
from kimi_proxy.services.settings import Names
from kimi_proxy.services.store.protocols import FactKind

ORDER = (
    "tools_on_demand",
    "translation",
    "clouds",
    "code_assist",
    "ollama",
    "hooks",
    "guardrail",
    "recorder",
    "telemetry",
    "log_watcher",
)
INSTALLED = tuple(name for name in ORDER if name in ADDON_SETTINGS)


def load(name: str) -> Addon:
    addon = import_module(f"kimi_proxy.addons.{name}.addon").ADDON
    if not isinstance(addon, Addon):
        raise TypeError(f"ADDON in kimi_proxy/addons/{name}/addon.py is no Addon")
    return addon


def switched_on(config: Config) -> Sequence[Addon]:
    """Return the addons that the settings switch on; the others are not loaded."""
    return [load(name) for name in INSTALLED if config.of(ADDON_SETTINGS[name]).is_on]


class AddonFiles(PersonalFiles):
    """The files that all addons have written about people; they are rarely asked for, and loaded then."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def of_person(self, person: str) -> Sequence[Path]:
        return [path for files in self._each() for path in files.of_person(person)]

    def forget(self, who: Caller, session: str | None) -> None:
        for files in self._each():
            files.forget(who, session)

    def _each(self) -> Sequence[PersonalFiles]:
        made = [load(name).files for name in INSTALLED]
        return [files(self._config) for files in made if files]


class AddonForms(Forms):
    """The forms of providers, each loaded with the first request to one of its providers."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers
        self._addons = {kind: name for name in INSTALLED for kind in ADDON_SETTINGS[name].PROVIDERS}
        self._made: dict[str, ProviderForm] = {}

    @property
    def kinds(self) -> Collection[str]:
        return self._addons.keys()

    def form(self, kind: str) -> ProviderForm | None:
        if kind not in self._made:
            if kind not in self._addons:
                return None
            self._made[kind] = load(self._addons[kind]).forms[kind](self._providers)
        return self._made[kind]


def lists_of(config: Config) -> Mapping[str, Names]:
    """Return the lists of names in the addons' settings that people may change, by their names in the file."""
    tables = [config.of(ADDON_SETTINGS[name]) for name in INSTALLED]
    return {f"{table.TABLE}.{name}": Names(getattr(table, name)) for table in tables for name in table.LISTS}


class LateStage:
    """The stage of an addon that is switched off: it is loaded once people name something in one of its lists.

    It is loaded as well if it has changed conversations before, which have to go on as they are.
    """

    def __init__(self, name: str, given: Given) -> None:
        self._name = name
        self._given = given
        self._stage: Stage | None = None
        self._has_notes: bool | None = None  # None: not known yet

    async def change(self, draft: Draft) -> Draft:
        if self._stage is None:
            if not (self._is_named() or await self.look()):
                return draft
            build = load(self._name).build
            self._stage = build(self._given).stage if build else None
        return await self._stage(draft) if self._stage else draft

    def _is_named(self) -> bool:
        settings = ADDON_SETTINGS[self._name]
        return any(self._given.lists[f"{settings.TABLE}.{each}"].names for each in settings.LISTS)

    async def look(self) -> bool:
        """Return whether it has changed conversations before, which is read once."""
        if self._has_notes is None:
            notes = [kind for kind in get_args(FactKind) if kind in ADDON_SETTINGS[self._name].NOTES]
            try:
                found = [await self._given.store.facts.keys(LOCAL, kind, 1) for kind in notes]
            except StoreUnavailable:
                return False
            # Notes of other people, or of another server, are not looked for: with a team it is always loaded.
            self._has_notes = self._given.config.team.enabled or any(found)
        return self._has_notes


async def late_stages(given: Given) -> Sequence[Stage]:
    """Return the stages of the addons that are switched off, and whose conversations may have to go on."""
    off = [name for name in INSTALLED if not given.config.of(ADDON_SETTINGS[name]).is_on]
    stages = [LateStage(name, given) for name in off if ADDON_SETTINGS[name].NOTES]
    for stage in stages:
        await stage.look()  # or the first request would wait for it
    return [stage.change for stage in stages]
