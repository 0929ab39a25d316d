"""Known models and prompt cache rules of each provider: context windows, prices and lifetimes.

Each row of the tables has its date and its source.
"""

import csv
import io
import re
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Literal, cast

from kimi_proxy.core.config.providers import Model

LOCAL = "local"  # the provider of names that people run themselves, with any server
_SERVE_OTHERS = (LOCAL, "groq", "nvidia")  # they serve what others make

# claude-sonnet-4-5-20250929, gpt-5.4-2026-03-05, codestral-2508, claude-opus-4@20250514
_DATE = re.compile(r"[-@](?:20\d\d-?\d\d-?\d\d|\d{4})$", re.ASCII)
# llama3.1:8b, qwen/qwen3.8-27b:free, claude-sonnet-4-5[1m], kimi-k2.5-preview
_TAG = re.compile(r"(?:[:@][\w.-]+|\[\w+\]|-latest|-preview)$", re.ASCII)
_LATEST = re.compile(r"[-:]latest$", re.ASCII)

# us.anthropic.claude-opus-4-6-v1:0, also with a window behind it: us-gov.anthropic.claude-3-haiku-20240307-v1:0:48k
_BEDROCK = re.compile(
    r"(?:(?<=/)|^)(?:[a-z-]{2,8}-)?anthropic-(claude-.+?)(?:-v\d+(?::\d+)?(?::\d+k)?)?(?:\[\w+\])?$", re.ASCII
)
_VERTEX = re.compile(r"-v\d+(?=@\d{8}$)", re.ASCII)  # claude-3-5-sonnet-v2@20241022

_WORD = re.compile(r"[a-z]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A row of known_models.csv. A price of None is not known; prices are in US dollars for a million tokens."""

    provider: str  # whose prices these are, by its name in the settings
    name: str  # there
    aliases: tuple[str, ...]
    apis: tuple[str, ...]
    tokenizer: str
    window: int
    max_output: int | None
    input_usd: float | None
    cached_usd: float | None
    cache_write_usd: float | None
    output_usd: float | None
    checked: str  # the day on which the row was compared with its source
    source: str

    def as_model(self, provider: str, charges: bool) -> Model:
        """Return the row as settings of a model that `provider` serves, with the prices only if it charges them."""
        prices = {
            "input_usd_per_million": self.input_usd,
            "cached_usd_per_million": self.cached_usd,
            "cache_write_usd_per_million": self.cache_write_usd,
            "output_usd_per_million": self.output_usd,
        }
        known = {key: price for key, price in prices.items() if price is not None and charges}
        return Model.model_validate({"provider": provider, "max_context_size": self.window, **known})


@cache
def table() -> tuple[KnownModel, ...]:
    """Return all rows. Read once, when a model is first asked for."""
    text = (files("kimi_proxy.features.models") / "known_models.csv").read_text("utf-8")
    return tuple(_row(fields) for fields in csv.DictReader(io.StringIO(text)))


def find(name: str, provider: str = "") -> KnownModel | None:
    """Return the row for a model of that name, of `provider` if it has one.

    Tried in order: the name itself or an alias; the name without a date; without a tag; without a provider's prefix.
    Upper case and the dots of versions make no difference: providers spell the same model either way.
    """
    key = spelling(name)
    while key:
        for each in dict.fromkeys((key, _DATE.sub("", key), _TAG.sub("", key), _DATE.sub("", _TAG.sub("", key)))):
            if rows := _index().get(each):
                return next((row for row in rows if row.provider == provider), rows[0])
        key = key.partition("/")[2]
    return None


def identity(name: str, keeps_tags: bool = False) -> str:
    """Return the one name of a model, however it is spelled: no provider's prefix, date, `-latest` or tag.

    A model of the table has its name there. A local server's tags stay: they are other models (llama3.1:8b).
    """
    plain = name[:200].lower().rstrip("/").rpartition("/")[2] or name[:200].lower()
    if not keeps_tags and (row := find(plain) or find(name)) is not None:
        return row.name.rpartition("/")[2]
    ending = _LATEST if keeps_tags else _TAG
    while (shorter := ending.sub("", _DATE.sub("", plain))) not in ("", plain):
        plain = shorter
    return plain


def maker(name: str) -> str:
    """Return the maker of a model, by the table or the beginning of its name; "" if unknown."""
    row = find(name)
    if row is not None and row.provider not in _SERVE_OTHERS:
        return row.provider
    found = _WORD.match(spelling(name).rpartition("/")[2])
    return _makers().get(found[0], "") if found is not None else ""


@cache
def _makers() -> dict[str, str]:
    rows = (row for row in reversed(table()) if row.provider not in _SERVE_OTHERS)
    return {found[0]: row.provider for row in rows if (found := _WORD.match(spelling(row.name)))}


@cache
def _index() -> dict[str, list[KnownModel]]:
    """Return the rows by their names, those of the model's own maker first."""
    index: dict[str, list[KnownModel]] = {}
    for row in table():
        for name in (row.name, *row.aliases):
            index.setdefault(spelling(name), []).append(row)
    return index


def spelling(name: str) -> str:
    """Return a name in lower case with dashes for dots: providers write the same model either way.

    Bedrock's us.anthropic.claude-sonnet-4-5-20250929-v1:0 is claude-sonnet-4-5-20250929.
    """
    plain = name[:200].lower().replace(".", "-")
    found = _BEDROCK.search(plain)
    return f"{plain[: found.start()]}{found[1]}" if found else _VERTEX.sub("", plain)


def _row(fields: dict[str, str]) -> KnownModel:
    def price(column: str) -> float | None:
        return float(fields[column]) if fields[column] else None

    return KnownModel(
        provider=fields["provider"],
        name=fields["name"],
        aliases=tuple(fields["aliases"].split()),
        apis=tuple(fields["apis"].split()),
        tokenizer=fields["tokenizer"],
        window=int(fields["window"]),
        max_output=int(fields["max_output"]) if fields["max_output"] else None,
        input_usd=price("input_usd"),
        cached_usd=price("cached_usd"),
        cache_write_usd=price("cache_write_usd"),
        output_usd=price("output_usd"),
        checked=fields["checked"],
        source=fields["source"],
    )


# Of pauses up to 15 s over a cache's life 11 of 13 were still hits in public sessions, of those up to 30 s 2 of 10.
COLD_AFTER_S = 30.0

Clock = Literal["request", "response"]
Match = Literal["marks", "prefix", "breakpoints", "units"]


@dataclass(frozen=True, slots=True)
class CacheRules:
    """The rules of a provider's prompt cache. Prices are multiples of the price of a plain input token."""

    life_s: float  # without use; 0: no caching
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
        """Return the pause after which the prefix is certainly lost."""
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
    """Return the cache rules for a model of `provider`, or of the model's maker if that provider is unknown.

    `ttl` is the requested lifetime: "1h", "24h", "" for the provider's default, None if the client sets no mark.
    """
    ruling = provider if provider in _providers() else maker(model)
    found = _rules(ruling, model[:200], ttl or "")
    # Without a mark such a provider caches nothing.
    return replace(found, life_s=0.0) if ttl is None and found.match == "marks" else found


@cache
def _providers() -> frozenset[str]:
    known = {row.provider for row in table()}
    return frozenset(known | {row.provider for row in cache_rows() if row.provider})


def long_write_price(provider: str, model: str) -> float:
    """Return the price of a write with the provider's longest lifetime; 0 if there is only one lifetime."""
    name = _name(model)
    longer = (row for row in cache_rows() if row.ttl and row.fits(provider, name))
    first = next(longer, None)
    return first.rules.write if first else 0.0


def _name(model: str) -> str:
    return spelling(model).rpartition("/")[2]


@cache
def cache_rows() -> tuple[_CacheRow, ...]:
    """Return all rows, the more specific ones first. Read once."""
    text = (files("kimi_proxy.features.models") / "prompt_caches.csv").read_text("utf-8")
    return tuple(_cache_row(fields) for fields in csv.DictReader(io.StringIO(text)))


@lru_cache(maxsize=1000)
def _rules(maker: str, model: str, ttl: str) -> CacheRules:
    name = _name(model)
    fitting = [row for row in cache_rows() if row.fits(maker, name)]
    row = next((row for row in fitting if row.ttl == ttl), None) or next(row for row in fitting if not row.ttl)
    return _with_prices(row, find(model, maker), maker)


def _with_prices(row: _CacheRow, model: KnownModel | None, maker: str) -> CacheRules:
    """Return the rules at the prices that are listed for the model itself, where they are."""
    rules = row.rules
    if model is None or model.provider != maker or not model.input_usd:
        return rules
    read = rules.read if model.cached_usd is None else model.cached_usd / model.input_usd
    is_listed = model.cache_write_usd is not None and not row.ttl
    write = (model.cache_write_usd or 0.0) / model.input_usd if is_listed else rules.write
    return replace(rules, read=read, write=write)


def _cache_row(fields: dict[str, str]) -> _CacheRow:
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
