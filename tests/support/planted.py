"""A configuration with a canary in every setting whose value is free text, and in every variable that is read.

The settings are found in their model: a new one gets its canary, or the test fails until it is said how.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr

from kimi_proxy.core.addresses import Address
from kimi_proxy.core.config import FileSettings
from kimi_proxy.core.config.providers import KEY_ALIASES

PLAIN = (bool, int, float)  # a number or a switch holds no text
CANARY = re.compile(r"canary-\d{4}-[a-z]*", re.IGNORECASE)

Make = Callable[["Garden", str], object]


@dataclass
class Garden:
    """The canaries that were planted: where each stands, and which are passwords."""

    home: Path
    places: dict[str, str] = field(default_factory=dict)  # canary → the setting or variable that holds it
    passwords: set[str] = field(default_factory=set)
    env: dict[str, str] = field(default_factory=dict)

    def word(self, place: str, kind: str = "") -> str:
        """Return a new canary that stands in a setting or a variable."""
        canary = f"canary-{len(self.places):04}-{kind}"
        self.places[canary] = place
        return canary

    def password(self, place: str) -> str:
        canary = self.word(place, "password")
        self.passwords.add(canary)
        return canary

    def path(self, place: str) -> str:
        return str(self.home / self.word(place))

    def address(self, place: str) -> str:
        """Return the address of a server where nothing listens, with a secret wherever an address may hold one."""
        user, path, query, end = (self.password(place) for _ in range(4))
        return f"http://{user}:{self.password(place)}@127.0.0.1:9/{path}?key={query}#{end}"

    def plain_address(self, place: str) -> str:
        """Return one of a setting that refuses users, passwords and queries."""
        return f"http://127.0.0.1:9/{self.password(place)}"

    def variable(self, place: str) -> str:
        """Return the name of a variable, in which a key stands."""
        name = self.word(place).replace("-", "_").upper() + "KEY"
        self.places[name] = self.places.pop(next(reversed(self.places)))
        self.env[name] = self.password(name)
        return name

    def found_in(self, text: str) -> set[str]:
        """Return the canaries in a text."""
        return {canary for canary in self.places if canary in text}


def settings(garden: Garden, special: Mapping[str, Make]) -> dict[str, object]:
    """Return a table of settings, with a canary in every text; `special` makes the values of some."""
    return dict(_table(garden, FileSettings, "", special))


def _table(
    garden: Garden, model: type[BaseModel], path: str, special: Mapping[str, Make]
) -> Iterator[tuple[str, object]]:
    for name, one in model.model_fields.items():
        place = f"{path}{name}"
        value = _value(garden, one.annotation, place, special)
        if value is not None:
            yield name, value


def _value(garden: Garden, annotation: object, place: str, special: Mapping[str, Make]) -> object:
    """Return a value with a canary; None for a number or a switch, which holds none."""
    if place in special:
        return special[place](garden, place)
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (each for each in get_args(annotation) if get_origin(each) is not Literal)
    if annotation in PLAIN or get_origin(annotation) is Literal:
        return None
    if annotation is str:
        return garden.word(place)
    if isinstance(annotation, type) and issubclass(annotation, Address):
        return garden.address(place)
    if isinstance(annotation, type) and issubclass(annotation, SecretStr):
        return garden.password(place)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return dict(_table(garden, annotation, f"{place}.", special))
    inner = get_args(annotation)
    if get_origin(annotation) in (tuple, frozenset):
        inside = _value(garden, inner[0], place, special)
        return None if inside is None else [inside]
    if inner and inner[0] is str and len(inner) == 2:
        inside = _value(garden, inner[1], f"{place}.*", special)
        return {garden.word(place): inside}
    raise AssertionError(
        f"where does a canary go in {place}, which is {annotation}? Say so in tests/support/planted.py"
    )


def variables(garden: Garden) -> Iterator[str]:
    """Yield every variable that holds a secret and belongs to no setting of the file."""
    yield "DEEPINFRA_API_KEY"
    yield "KIMI_PROXY_OIDC_CLIENT_SECRET"
    yield from (each for pair in KEY_ALIASES.items() for each in pair)
