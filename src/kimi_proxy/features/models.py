"""Which provider answers a model, and what the model is called there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config.providers import Model, Provider
from kimi_proxy.core.errors import NoProvider


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes."""

    provider: str
    model: str  # its name there
    key: str | None = None  # its name in the settings, if it is there


class Models:
    def __init__(self, providers: Mapping[str, Provider], models: Mapping[str, Model]) -> None:
        self._providers = {name: provider for name, provider in providers.items() if provider.enabled}
        self._off = frozenset(providers) - frozenset(self._providers)
        self._models = models

    def target(self, name: str, wire: Wire) -> Target:
        """Find a name of the settings, else one that a provider knows, else take the part after the first `/`.

        Raise NoProvider if none can answer.
        """
        if name in self._models:
            return self._checked(self._configured(name), wire)
        by_name = (self._configured(key) for key in self._models)
        known = [target for target in by_name if target.model == name and self._answers(target.provider, wire)]
        return known[0] if known else self._unknown(name, wire)

    def offered(self) -> Iterator[tuple[str, Model]]:
        """Return the models that clients may name, with their settings."""
        return ((key, model) for key, model in self._models.items() if model.provider in self._providers)

    def window(self, target: Target) -> int | None:
        """Return the size of the context window in tokens; None if the settings do not know the model."""
        model = self._models.get(target.key or "")
        return None if model is None else model.max_context_size

    def siblings(self, target: Target) -> Iterator[Target]:
        """Return all models of the same provider."""
        return (self._configured(key) for key, model in self.offered() if model.provider == target.provider)

    def _configured(self, key: str) -> Target:
        model = self._models[key]
        return Target(model.provider, model.model or key.removeprefix(f"{model.provider}/"), key)

    def _unknown(self, name: str, wire: Wire) -> Target:
        prefix, slash, rest = name.partition("/")
        model = rest if slash and rest else name
        if prefix in self._providers and rest:
            return self._checked(Target(prefix, model), wire)
        first = next((provider for provider in self._providers if self._answers(provider, wire)), None)
        if first is None:
            raise NoProvider(
                f"no provider is configured that could answer {wire.format.paths[0]}: put [providers.NAME] with "
                f'type = "{wire.format.provider_types[0]}" in config.toml (config.example.toml shows the known ones), '
                "and start again"
            )
        return Target(first, model)

    def _answers(self, provider: str, wire: Wire) -> bool:
        return provider in self._providers and self._providers[provider].speaks(wire)

    def _checked(self, target: Target, wire: Wire) -> Target:
        if self._answers(target.provider, wire):
            return target
        if target.provider in self._off:
            raise NoProvider(f"the provider {target.provider} is switched off: set enabled = true in its section")
        raise NoProvider(
            f"{target.model[:80]!r} is answered by {target.provider}, which does not speak the API of "
            f"{wire.format.paths[0]}: "
            f'add a provider of type = "{wire.format.provider_types[0]}" for it, or ask it by another route'
        )
