"""Models: the provider of each, its name there, and its known facts."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.core.cache import LruCache
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.providers import CHATGPT, CLOUDS, Model, Provider, is_key_of, is_local, maker_at
from kimi_proxy.core.errors import NoProvider
from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.models import known as known_models
from kimi_proxy.features.models.known import LOCAL, CacheRules, KnownModel, cache_rules, long_write_price

MAX_NAMES, MAX_NAME_CHARS = 1000, 200  # that are remembered: clients choose names freely
MAX_WINDOW = 1 << 30
MAX_LISTED = 10_000  # models of one provider's list that are looked at

_NUMBER = re.compile(r"\d+")
_VERSION = re.compile(r"[-.]?\d+(?:\.\d+)*")
# What providers call the window in their lists of models: Anthropic, Moonshot and OpenRouter, Groq, Mistral, vLLM,
# LM Studio, llama.cpp.
_WINDOWS = (
    "max_input_tokens",
    "context_length",
    "context_window",
    "max_context_length",
    "max_model_len",
    "loaded_context_length",
    "n_ctx",
    "n_ctx_train",
)


@dataclass(frozen=True, slots=True)
class Target:
    """The destination of a request."""

    provider: str
    model: str  # its name there
    key: str | None = None  # its name in the settings, if it is there

    @property
    def name(self) -> str:
        """Return the name by which clients know it."""
        return self.key or self.model


class Models:
    def __init__(
        self,
        providers: Mapping[str, Provider],
        models: Mapping[str, Model],
        on_demand: Collection[str] = (),  # providers that the file does not name
        keyed: Collection[str] = (),  # providers with a key of ours
        file: Path | None = None,
        off_lines: Mapping[str, int] | None = None,
    ) -> None:
        self._all = providers
        self._providers = {name: provider for name, provider in providers.items() if provider.enabled}
        self._on_demand = {name: providers[name] for name in providers if name in on_demand}
        self._keyed = frozenset(keyed)
        self._models = models
        self._file = file
        self._off_lines = off_lines or {}
        # Every request asks for these.
        self._makers = {name: maker_at(name, provider) for name, provider in providers.items()}
        self._local = frozenset(name for name, provider in providers.items() if is_local(provider))
        self._plans = [name for name in (*self._providers, *self._on_demand) if self._makers[name] == CHATGPT]
        self._by_name: dict[str, list[Target]] = {}
        for target in map(self.configured_target, models):
            self._by_name.setdefault(target.model, []).append(target)
        self._identities: LruCache[tuple[str, bool], str] = LruCache(MAX_NAMES)
        self._by_identity: dict[str, list[str]] = {}
        for key in models:
            self._by_identity.setdefault(self.identity(self.configured_target(key)), []).append(key)
        # Windows by the providers' own lists.
        self._listed: LruCache[tuple[str, str], int] = LruCache(MAX_NAMES)
        self._known: LruCache[Target, tuple[Model | None]] = LruCache(MAX_NAMES)

    @classmethod
    def of(cls, config: Config) -> "Models":
        keyed = config.provider_keys
        return cls(config.providers, config.models, config.on_demand, keyed, config.file, config.off_lines)

    def target(self, name: str, wire: Wire, credential: str = "", translate: bool = False, prefer: str = "") -> Target:
        """Find a name in the settings, then among providers' own names; otherwise use the part after the first `/`.

        `credential` is the client's own key. With `translate`, a provider that needs translation may be used too, after
        those with the client's API. With `prefer`, a type of providers, one of those is used for a name that is not in
        the settings. Raise NoProvider if there is no provider.
        """
        if name in self._models:
            return self._check_target(self.configured_target(name), wire, credential, translate)
        by_name = self._by_name.get(name, ())
        usable = [target for target in by_name if self._answers(target.provider, wire)]
        if not usable and translate:
            usable = [target for target in by_name if self._translates(target.provider, wire)]
        if usable:
            return usable[0]
        if prefer and (found := self._provider_of_type(prefer, credential)):
            return Target(found, name)  # the name of a cloud may be a path
        return self._unlisted_target(name, wire, credential, translate)

    def upstream_wire(self, target: Target, wire: Wire) -> Wire:
        """Return the API in which a request of `wire` reaches its provider."""
        provider = self._all[target.provider]
        return translated_wire(provider) if provider.translates(wire) else wire

    def is_plan_login(self, credential: str) -> bool:
        """Return whether a client is logged in with a plan that one of the providers is."""
        return any(self._is_plan(each, Wire.RESPONSES, credential) for each in self._plans)

    def listing(self, wire: Wire, credential: str) -> list[str]:
        """Return the providers that a client of this API may ask, with a key of theirs: to list their models."""
        usual = [name for name, each in self._providers.items() if each.speaks(wire) or each.translates(wire)]
        if usual:
            return [name for name in usual if self._maker(name) != CHATGPT]
        able = (name for name, each in self._on_demand.items() if each.speaks(wire))
        return [name for name in able if name in self._keyed or is_key_of(name, credential)]

    def maker(self, provider: str) -> str:
        """Return the maker of models that answers there itself."""
        return self._maker(provider)

    def is_anthropic(self, provider: str) -> bool:
        """Return whether Anthropic itself answers there."""
        return self._maker(provider) == "anthropic"

    def sends_our_key(self, provider: str, credential: str) -> bool:
        """Return whether a request is sent with our key instead of the client's own credential."""
        return provider in self._keyed and not (provider in self._on_demand and is_key_of(provider, credential))

    def offered_models(self) -> Iterator[tuple[str, Model]]:
        """Return the models that clients may name, with their settings."""
        return ((key, model) for key, model in self._models.items() if model.provider in self._providers)

    def model(self, target: Target) -> Model | None:
        """Return the properties of a model: from the settings, otherwise the provider, otherwise the table."""
        known = self._known.get(target)
        if known is None:
            known = (self._merge_settings(target),)
            if len(target.model) <= MAX_NAME_CHARS:
                self._known.put(target, known)
        return known[0]

    def identity(self, target: Target) -> str:
        """Return the one name of a model, whichever provider serves it and however it is spelled."""
        spelled = target.model[:MAX_NAME_CHARS], self._is_local(target.provider)
        found = self._identities.get(spelled)
        if found is None:
            found = known_models.identity(*spelled)
            self._identities.put(spelled, found)
        return found

    def is_same(self, name: str, target: Target) -> bool:
        """Return whether a setting's `name` means this model: a key there, or any spelling with or without a prefix."""
        if name in self._models:
            return self.identity(self.configured_target(name)) == self.identity(target)
        return self.identity(Target(target.provider, name)) == self.identity(target)

    def counted_name(self, target: Target) -> str:
        """Return the name under which requests to a model are counted: its first key in the settings, else its own."""
        return self._key_of(target) or self.identity(target)

    def counted_names(self, target: Target) -> tuple[str, ...]:
        """Return every name under which requests to a model are counted, whichever provider serves it."""
        identity = self.identity(target)
        return (identity, *self._by_identity.get(identity, ()))

    def _key_of(self, target: Target) -> str:
        """Return the key in the settings of a provider's model, also if the client spells its name otherwise."""
        same = self._by_identity.get(self.identity(target), ())
        return target.key or next((key for key in same if self._models[key].provider == target.provider), "")

    def window(self, target: Target) -> int | None:
        """Return the size of the context window in tokens; None if it is not known."""
        model = self.model(target)
        return None if model is None else model.max_context_size

    def is_certain(self, target: Target) -> bool:
        """Return whether the window of a model is beyond doubt: set in the file, listed by its provider, or public."""
        configured = self._models.get(target.key or "")
        if configured is not None and "max_context_size" in configured.model_fields_set:
            return True
        if (target.provider, target.model) in self._listed:
            return True
        # A local model's window is chosen when it is started: the table has only the largest.
        return not self._is_local(target.provider) and self._row(target) is not None

    def cache_rules(self, target: Target, ttl: str | None = "") -> CacheRules:
        """Return how the provider caches a request to a model that asks for this life."""
        return cache_rules(self._maker(target.provider), target.model, ttl)

    def learn(self, target: Target, window: int) -> None:
        """Remember a window that the provider itself lists."""
        self._listed.put((target.provider, target.model), window)
        self._known.forget_matching(lambda _: True)

    def siblings(self, target: Target, named: Collection[str] = ()) -> list[Target]:
        """Return the models of the same provider that a request may go to, those of the settings first.

        Where the settings have none, it is the next version of the same model with a larger window. `named` adds others
        that the table knows, as PROVIDER/NAME.
        """
        provider = target.provider
        configured = [self.configured_target(key) for key, model in self.offered_models() if model.provider == provider]
        row = self._row(target)
        is_own = row is not None and row.provider == self._maker(provider)
        later = _later_versions(row) if row is not None and is_own and not configured else []
        prefix = f"{provider}/"
        added = [name.removeprefix(prefix) for name in named if name.startswith(prefix) and name not in self._models]
        return [*configured, *(Target(provider, name) for name in (*(each.name for each in later), *added))]

    def configured_target(self, key: str) -> Target:
        """Return the target of a name in the settings."""
        model = self._models[key]
        return Target(model.provider, model.model or key.removeprefix(f"{model.provider}/"), key)

    def _unlisted_target(self, name: str, wire: Wire, credential: str, translate: bool) -> Target:
        """Return the target of a name that is not in the settings; configured providers come first."""
        prefix, slash, rest = name.partition("/")
        model = rest if slash and rest else name
        if rest and (prefix in self._providers or prefix in self._on_demand):
            return self._check_target(Target(prefix, model), wire, credential, translate)
        if rest and prefix in self._off_lines:
            raise self._switched_off(prefix)
        maker = known_models.maker(name)
        if plan := next((each for each in self._plans if self._is_plan(each, wire, credential)), None):
            return Target(plan, model)
        # A plan takes nothing but its own logins: other credentials are not for its eyes.
        able = [each for each in self._providers if self._answers(each, wire) and self._maker(each) != CHATGPT]
        translating = [each for each in self._providers if translate and self._translates(each, wire)]
        makers = (each for each in (*able, *translating) if maker and self._maker(each) == maker)
        if found := next(makers, None):
            return Target(found, model)
        if able or (translating and not self._is_asked_on_demand(maker, wire, credential)):
            return Target((able or translating)[0], model)
        if translate and maker in self._on_demand and self._on_demand[maker].translates(wire):
            return self._check_target(Target(maker, name.removeprefix(f"{maker}/")), wire, credential, translate)
        return self._on_demand_target(name, maker, wire, credential)

    def _provider_of_type(self, wanted: str, credential: str) -> str | None:
        """Return a provider of the file, else one for which the client has a login."""
        able = {n: each for n, each in self._on_demand.items() if is_key_of(n, credential)}
        return next((n for n, each in {**self._providers, **able}.items() if each.type == wanted), None)

    def _is_asked_on_demand(self, maker: str, wire: Wire, credential: str) -> bool:
        """Return whether a model's maker supports the client's API, and there is a key for it."""
        has_key = maker in self._keyed or is_key_of(maker, credential)
        return has_key and maker in self._on_demand and self._on_demand[maker].speaks(wire)

    def _is_plan(self, provider: str, wire: Wire, credential: str) -> bool:
        """Return whether a client is logged in with the plan that `provider` is: its models have another's names."""
        return self._all[provider].speaks(wire) and is_key_of(CHATGPT, credential)

    def _on_demand_target(self, name: str, maker: str, wire: Wire, credential: str) -> Target:
        """Return the maker of a model, else the only provider for which there is a key."""
        able = [each for each, provider in self._on_demand.items() if provider.speaks(wire)]
        keyed = [each for each in able if each in self._keyed or is_key_of(each, credential)]
        chosen = keyed[0] if len(keyed) == 1 and maker not in (*able, *self._off_lines) else maker
        if chosen in self._off_lines:
            raise self._switched_off(chosen)
        if chosen in able:
            return self._check_target(Target(chosen, name.removeprefix(f"{chosen}/")), wire, credential)
        names = ", ".join(f"{each}/{name[:80]}" for each in keyed[:5])
        raise NoProvider(
            f"no configured provider can answer {wire.format.paths[0]} for {name[:80]!r}: "
            + (f"write it as one of {names}, or " if names else "")
            + f'put [providers.NAME] with type = "{wire.format.provider_types[0]}" in config.toml '
            "(kimi-proxy config init writes one), and start again",
            f"; the file is {self._file}" if self._file else "",
        )

    def _answers(self, provider: str, wire: Wire) -> bool:
        return provider in self._providers and self._providers[provider].speaks(wire)

    def _translates(self, provider: str, wire: Wire) -> bool:
        return provider in self._providers and self._providers[provider].translates(wire)

    def _check_target(self, target: Target, wire: Wire, credential: str, translate: bool = False) -> Target:
        name = target.provider
        provider = self._all[target.provider]
        if name not in self._providers and name not in self._on_demand:
            raise self._switched_off(name)
        if not provider.speaks(wire) and not (translate and provider.translates(wire)):
            raise NoProvider(
                f"{target.model[:80]!r} is offered by {name}, which does not support the API of "
                f"{wire.format.paths[0]}: "
                f'add a provider of type = "{wire.format.provider_types[0]}" for it, or use another route'
            )
        has_key = name in self._providers or name in self._keyed or is_key_of(name, credential)
        if not has_key and name not in self._local:
            # Without a key the provider would refuse, but it would have read the request.
            raise NoProvider(
                f"{target.model[:80]!r} is offered by {name}, but there is no key for it: let your client send its own",
                f", or set {provider.key_variable} in kimi-proxy's environment",
            )
        return target

    def _switched_off(self, name: str) -> NoProvider:
        line = self._off_lines.get(name, 0)
        where = f"{self._file or 'the configuration file'}{f', line {line}' if line else ''}"
        return NoProvider(
            f"the provider {name} is switched off",
            f": set enabled = true in [providers.{name}] ({where}), and start again",
        )

    def _merge_settings(self, target: Target) -> Model | None:
        configured = self._models.get(self._key_of(target))
        row = self._row(target)
        listed = self._listed.get((target.provider, target.model))
        if configured is None and row is None and listed is None:
            return None
        maker = self._seller(target)
        charges = row is not None and row.provider == maker
        known = row.as_model(target.provider, charges).model_dump(exclude_unset=True) if row is not None else {}
        if row is not None and charges and row.input_usd:
            known = {**self._cache_prices(target, maker, row.input_usd), **known}
        own = {} if listed is None else {"max_context_size": listed}
        given = {} if configured is None else configured.model_dump(exclude_unset=True)
        return Model.model_validate({"provider": target.provider, **known, **own, **given})

    def _seller(self, target: Target) -> str:
        """Return whose price list holds there: clouds sell Anthropic's models at Anthropic's prices."""
        provider = self._providers.get(target.provider)
        return "anthropic" if provider is not None and provider.type in CLOUDS else self._maker(target.provider)

    def is_priced(self, target: Target) -> bool:
        """Return whether the cost of a model is known: by a price list, as free, or because it runs on this machine."""
        model = self.model(target)
        if model is None:
            return self._is_local(target.provider)
        is_listed = bool(model.input_usd_per_million or model.output_usd_per_million)
        return is_listed or "input_usd_per_million" in model.model_fields_set or self._is_local(target.provider)

    def _cache_prices(self, target: Target, maker: str, input_usd: float) -> dict[str, float]:
        """Return the prices of the prompt cache that follow from that of plain input."""
        rules = cache_rules(maker, target.model, "")
        long = long_write_price(maker, target.model)
        prices = {"cached": rules.read, "cache_write": rules.write, "long_write": long}
        return {f"{name}_usd_per_million": input_usd * ratio for name, ratio in prices.items() if ratio}

    def _row(self, target: Target) -> KnownModel | None:
        maker = LOCAL if self._is_local(target.provider) else self._maker(target.provider)
        return known_models.find(target.model, maker)

    def _maker(self, provider: str) -> str:
        return self._makers.get(provider, provider)

    def _is_local(self, provider: str) -> bool:
        return provider in self._local


def translated_wire(provider: Provider) -> Wire:
    """Return the API that requests are translated into for a provider."""
    return Wire.MESSAGES if provider.speaks_messages else Wire.CHAT


def models_in(listing: JsonValue) -> list[str]:
    """Return the names in a provider's list of models."""
    names = (row.get("id") or row.get("name") or row.get("slug") for row in _rows(listing))
    return [name for name in names if isinstance(name, str)]


def _rows(listing: JsonValue) -> list[Mapping[str, JsonValue]]:
    rows = listing.get("data", listing.get("models")) if isinstance(listing, dict) else listing
    return [row for row in rows[:MAX_LISTED] if isinstance(row, dict)] if isinstance(rows, list) else []


def window_in(listing: JsonValue, model: str) -> int | None:
    """Return the window that a provider's list of models gives for `model`; None if it gives none."""
    for row in _rows(listing):
        if model in (row.get("id"), row.get("name"), row.get("model")):
            inner = (row, row.get("meta"), row.get("top_provider"), row.get("limits"))
            found = (each.get(name) for each in inner if isinstance(each, dict) for name in _WINDOWS)
            return next((size for size in found if type(size) is int and 0 < size < MAX_WINDOW), None)
    return None


def lines_to_paste(target: Target) -> str:
    """Return what to write in the file so that a model's window is known."""
    name = target.name.replace("\\", "\\\\").replace('"', '\\"')
    head = f'[models."{name}"]\nprovider = "{target.provider}"\n'
    return f"{head}max_context_size = 131072  # replace it by the model's own\n"


def _later_versions(row: KnownModel) -> list[KnownModel]:
    """Return the next version of the same model that has a larger window, if there is one."""
    line = _VERSION.sub("", row.name)
    version = _version(row)
    larger = (
        each
        for each in known_models.table()
        if each.provider == row.provider
        and each.window > row.window
        and _version(each) > version
        and _VERSION.sub("", each.name) == line
        and set(row.apis) <= set(each.apis)
    )
    return sorted(larger, key=_version)[:1]


def _version(row: KnownModel) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBER.findall(row.name))
