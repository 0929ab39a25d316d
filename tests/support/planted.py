"""A configuration with a canary in every setting that is free text, and in every variable that holds text.

The settings are found in their model: a new one gets its canary, or the tests that use this fail until it is said how.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.config import Config, FileSettings, parse
from kimi_proxy.core.config.environment import ENVIRONMENT
from kimi_proxy.core.config.providers import KEY_ALIASES
from kimi_proxy.core.config.servers import McpServer

Make = Callable[["Garden", str], object]


@dataclass
class Garden:
    """Where every canary stands, and which of them are passwords."""

    home: Path
    places: dict[str, str] = field(default_factory=dict)  # canary → the setting or the variable that holds it
    passwords: set[str] = field(default_factory=set)
    env: dict[str, str] = field(default_factory=dict)

    def word(self, place: str, joint: str = "-") -> str:
        """Return a new canary for a setting or a variable."""
        canary = f"canary{joint}{len(self.places):04}"
        self.places[canary] = place
        return canary

    def password(self, place: str) -> str:
        canary = self.word(place)
        self.passwords.add(canary)
        return canary

    def folder(self, place: str) -> str:
        path = self.home / self.word(place)
        path.mkdir()
        return str(path)

    def address(self, place: str) -> str:
        """Return the address of a server with a secret wherever an address may hold one."""
        user, password, path, query, end = (self.password(place) for _ in range(5))
        return f"http://{user}:{password}@{self.host(place)}/{path}?key={query}#{end}"

    def plain_address(self, place: str) -> str:
        """Return an address without a user, a password and a query, which some settings refuse."""
        return f"http://{self.host(place)}/{self.password(place)}"

    def host(self, place: str) -> str:
        """Return an address of this machine that is a canary of its own: nothing listens there."""
        host = f"127.77.1.{100 + sum(each.startswith('127.77.') for each in self.places)}"
        self.places[host] = place
        return f"{host}:9"

    def secret_variable(self, place: str) -> str:
        """Return the name of a variable that holds a secret; the name is a canary of its own."""
        name = self.word(place, "")
        self.env[name] = self.password(name)
        return name

    def found_in(self, text: str) -> set[str]:
        """Return the places whose canaries are in a text."""
        return {place for canary, place in self.places.items() if canary in text}

    def passwords_in(self, text: str) -> set[str]:
        return {self.places[canary] for canary in self.passwords if canary in text}

    def name_of(self, place: str) -> str:
        """Return the canary that stands in a place."""
        return next(canary for canary, where in self.places.items() if where == place)


def tables(garden: Garden, special: Mapping[str, Make]) -> dict[str, object]:
    """Return all settings, with a canary in every text. `special` makes the values of some; None leaves one out."""
    return table(garden, FileSettings, "", special)


def table(garden: Garden, model: type[BaseModel], path: str, special: Mapping[str, Make]) -> dict[str, object]:
    made = {name: _value(garden, one.annotation, f"{path}{name}", special) for name, one in model.model_fields.items()}
    return {name: value for name, value in made.items() if value is not None}


def _value(garden: Garden, annotation: object, place: str, special: Mapping[str, Make]) -> object:
    """Return a value with a canary; None for a number or a switch, which has no room for one."""
    if place in special:
        return special[place](garden, place)
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (each for each in get_args(annotation) if get_origin(each) is not Literal)
    if annotation in (bool, int, float) or get_origin(annotation) is Literal:
        return None
    if annotation is str:
        return garden.word(place)
    inner = get_args(annotation)
    if get_origin(annotation) is tuple:
        inside = _value(garden, inner[0], place, special)
        return None if inside is None else [inside]
    if len(inner) == 2 and inner[0] is str:
        name = garden.word(place) + ("_KEY" if inner[1] is SecretStr else "")
        return {name: _value(garden, inner[1], f"{place}.*", special)}
    if isinstance(annotation, type) and issubclass(annotation, Address):
        return garden.address(place)
    if isinstance(annotation, type) and issubclass(annotation, SecretStr):
        return garden.password(place)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return table(garden, annotation, f"{place}.", special)
    raise AssertionError(f"{place} is a {annotation}: say in tests/support/planted.py where its canary goes")


def no_room(garden: Garden, place: str) -> None:
    """Leave out a setting that takes no free text."""


def a_database(garden: Garden, place: str) -> str:
    user, password, name = garden.password(place), garden.password(place), garden.word(place)
    return f"postgresql://{user}:{password}@{garden.host(place)}/{name}?application_name={garden.word(place)}"


# A program that prints all that it was given, as a careless one may do when it fails.
TELLTALE = "import os, sys; print('error:', sys.argv, dict(os.environ), file=sys.stderr); sys.exit(7)"


def mcp_servers(garden: Garden, place: str) -> dict[str, object]:
    """Return a server elsewhere, two programs that tell all they know, and one that is not installed."""
    special: dict[str, Make] = {
        f"{place}.*.env_pass": lambda garden, place: [garden.secret_variable(place)],
        f"{place}.*.root": Garden.folder,
    }
    elsewhere, missing, over_stdio, over_http = (table(garden, McpServer, f"{place}.*.", special) for _ in range(4))
    for name in ("command", "args", "env", "env_pass"):
        del elsewhere[name]
    del missing["url"], over_stdio["url"]
    for program in (over_stdio, over_http):
        program["command"] = sys.executable
        program["args"] = ["-c", TELLTALE, "--api-key", garden.password(f"{place}.*.args")]
    return {garden.word(place): server for server in (elsewhere, missing, over_stdio, over_http)}


# The values of settings that take no canary, or not just any.
SPECIAL: Mapping[str, Make] = {
    "store.url": a_database,
    "store.listen_url": a_database,
    "providers.*.base_url": Garden.plain_address,
    "providers.*.proxy": Garden.plain_address,
    "providers.*.api_key": lambda garden, place: f"${{{garden.secret_variable(place)}}}",
    "providers.*.translate": no_room,
    "models.*.provider": lambda garden, place: garden.name_of("providers"),
    "sanitizer.routing.fallback_models": lambda garden, place: [f"kimi/{garden.word(place)}"],
    "mcp.servers": mcp_servers,
    "mcp_pruner.backend": lambda garden, place: "deepinfra",
    "tools.cwd": Garden.folder,
    "tools.roots": lambda garden, place: [garden.folder(place)],
    "record.dir": Garden.folder,
    "record.enabled": lambda garden, place: True,
    "display.currency": no_room,  # three letters
    "access.trusted_proxies": no_room,  # networks
    "team.enabled": lambda garden, place: True,
    "team.budgets.*.requests": lambda garden, place: 10**9,
    "team.oidc.issuer": lambda garden, place: f"http://127.0.0.1:9/{garden.password(place)}",
    "team.oidc.public_url": lambda garden, place: f"http://{garden.word(place)}.example",
    "team.oidc.scopes": lambda garden, place: ["openid", garden.word(place)],
}


def plant(home: Path, more_toml: str = "", database: Make = a_database) -> tuple[Garden, Config]:
    """Return a configuration that is read as a team's is, and where its canaries are."""
    garden = Garden(home)
    settings = tables(garden, {**SPECIAL, "store.url": database})
    for variable in ("KIMI_PROXY_TOKEN", "KIMI_PROXY_OIDC_CLIENT_SECRET", "DEEPINFRA_API_KEY", *_provider_keys(home)):
        garden.env[variable] = garden.password(variable)
    _move_to_variables(garden, settings)
    garden.env["KIMI_PROXY_UPSTREAMS"] = f"ollama={garden.plain_address('KIMI_PROXY_UPSTREAMS')}"
    garden.env["KIMI_PROXY_HOME"] = garden.folder("KIMI_PROXY_HOME")
    file = home / f"{garden.word('KIMI_PROXY_CONFIG')}.toml"
    garden.env["KIMI_PROXY_CONFIG"] = str(file)
    file.write_text(_to_toml(settings) + more_toml)
    return garden, parse(file.read_text(), garden.env, home).model_copy(update={"file": file})


def _provider_keys(home: Path) -> list[str]:
    """Return the variables of the known providers' keys."""
    known = [one.key_variable for one in parse("", {}, home).providers.values() if one.key_variable]
    return [*known, *KEY_ALIASES.values()]


def _move_to_variables(garden: Garden, settings: dict[str, object]) -> None:
    """Set what has a variable by that variable, as a team does; of aliases the first one counts."""
    for variable, section, key, _ in ENVIRONMENT:
        inside = settings.get(section)
        value = inside.pop(key, None) if isinstance(inside, dict) else None
        if value is not None:
            garden.env[variable] = ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _to_toml(settings: Mapping[str, object], path: str = "") -> str:
    inner = {name: value for name, value in settings.items() if isinstance(value, Mapping)}
    lines = [f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in settings.items() if name not in inner]
    head = f"[{path}]\n" if path else ""
    below = [_to_toml(value, f"{path}.{json.dumps(name)}" if path else name) for name, value in inner.items()]
    return "".join((head, *lines, *below))
