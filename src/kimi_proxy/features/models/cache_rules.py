"""The prompt cache rules of each provider: lifetime, price and matching; each row has a date and a source."""

import csv
import io
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal, cast

from kimi_proxy.features.models import known as known_models

# Of pauses up to 15 s over a cache's life 11 of 13 were still hits in public sessions, of those up to 30 s 2 of 10.
COLD_AFTER_S = 30.0

Clock = Literal["request", "response"]
Match = Literal["marks", "prefix", "breakpoints", "units"]


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The rules of a provider's prompt cache. Prices are multiples of the price of a plain input token."""

    life_s: float  # without use; 0: nothing is cached
    clock: Clock  # whether the life counts from the start of a request or from the end of its answer
    is_refreshed: bool  # a read renews the lifetime
    read: float
    write: float
    least_tokens: int  # a shorter prefix is not cached
    breakpoints: int  # that a request may set; 0 where there are none
    look_back: int  # blocks before a mark in which an earlier entry is found; 0: no such limit
    match: Match
    checked: str
    source: str
    is_long: bool = False  # the request asks for the longer of the lives that the provider sells

    @property
    def cold_after_s(self) -> float:
        """Return the pause after which nothing is left of a prefix."""
        return self.life_s + COLD_AFTER_S if self.life_s else 0.0


@dataclass(frozen=True, slots=True)
class _CacheRow:
    provider: str
    models: tuple[str, ...]
    ttl: str
    rules: CacheRules

    def fits(self, provider: str, model: str) -> bool:
        return self.provider in ("", provider) and any(fnmatchcase(model, each) for each in self.models)


def cache_rules(provider: str, model: str, ttl: str | None = "") -> CacheRules:
    """Return the rules for a request to a model of `provider`; those of the model's maker if no such provider is known.

    `ttl` is what the request asks for: "1h", "24h", "" for the provider's own choice, None if it sets no mark at all.
    """
    maker = provider if provider in _providers() else known_models.maker(model)
    found = _rules(maker, model[:200], ttl or "")
    # Without a mark such a provider caches nothing.
    return replace(found, life_s=0.0) if ttl is None and found.match == "marks" else found


@cache
def _providers() -> frozenset[str]:
    known = {row.provider for row in known_models.table()}
    return frozenset(known | {row.provider for row in table() if row.provider})


def long_write_price(provider: str, model: str) -> float:
    """Return what it costs to write for the longest life that the provider sells; 0 if it sells one only."""
    name = _name(model)
    longer = (row for row in table() if row.ttl and row.fits(provider, name))
    first = next(longer, None)
    return first.rules.write if first else 0.0


def _name(model: str) -> str:
    return known_models.spelling(model).rpartition("/")[2]


@cache
def table() -> tuple[_CacheRow, ...]:
    """Return all rows, the more specific ones first. Read once."""
    text = (files("kimi_proxy.features.models") / "prompt_caches.csv").read_text("utf-8")
    return tuple(_row(fields) for fields in csv.DictReader(io.StringIO(text)))


@lru_cache(maxsize=1000)
def _rules(maker: str, model: str, ttl: str) -> CacheRules:
    name = _name(model)
    fitting = [row for row in table() if row.fits(maker, name)]
    row = next((row for row in fitting if row.ttl == ttl), None) or next(row for row in fitting if not row.ttl)
    return _with_prices(row, known_models.find(model, maker), maker)


def _with_prices(row: _CacheRow, model: known_models.KnownModel | None, maker: str) -> CacheRules:
    """Return the rules at the prices that are listed for the model itself, where they are."""
    rules = row.rules
    if model is None or model.provider != maker or not model.input_usd:
        return rules
    read = rules.read if model.cached_usd is None else model.cached_usd / model.input_usd
    is_listed = model.cache_write_usd is not None and not row.ttl
    write = (model.cache_write_usd or 0.0) / model.input_usd if is_listed else rules.write
    return replace(rules, read=read, write=write)


def _row(fields: dict[str, str]) -> _CacheRow:
    rules = CacheRules(
        life_s=float(fields["life_s"]),
        clock=cast(Clock, fields["clock"]),
        is_refreshed=fields["refresh"] == "yes",
        read=float(fields["read"]),
        write=float(fields["write"]),
        least_tokens=int(fields["least_tokens"]),
        breakpoints=int(fields["breakpoints"]),
        look_back=int(fields["look_back"]),
        match=cast(Match, fields["match"]),
        checked=fields["checked"],
        source=fields["source"],
    )
    ttl = fields["ttl"]
    return _CacheRow(fields["provider"], tuple(fields["models"].split()), ttl, replace(rules, is_long=bool(ttl)))
