"""The addons, in the order in which they observe a request: each is there if its folder is."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from kimi_proxy.api.addon import Addon, PersonalFiles
from kimi_proxy.core.caller import Caller
from kimi_proxy.core.config import ADDON_SETTINGS, Config
from kimi_proxy.core.config.providers import Provider
from kimi_proxy.services.chat.forms import Forms, ProviderForm

ORDER = ("translation", "clouds", "code_assist", "ollama", "hooks", "guardrail", "recorder", "telemetry", "log_watcher")
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
