"""The models that are known without configuration: their windows and prices, each row with its date and its source."""

import csv
import io
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kimi_proxy.core.config.providers import Model

LOCAL = "local"  # the provider of names that people run themselves, with any server
_SERVE_OTHERS = (LOCAL, "groq", "nvidia")  # they serve what others make

# claude-sonnet-4-5-20250929, gpt-5.4-2026-03-05, codestral-2508, claude-opus-4@20250514
_DATE = re.compile(r"[-@](?:20\d\d-?\d\d-?\d\d|\d{4})$", re.ASCII)
# llama3.1:8b, qwen/qwen3.8-27b:free, claude-sonnet-4-5[1m], kimi-k2.5-preview
_TAG = re.compile(r"(?:[:@][\w.-]+|\[\w+\]|-latest|-preview)$", re.ASCII)
_LATEST = re.compile(r"[-:]latest$", re.ASCII)

_BEDROCK = re.compile(r"(?:(?<=/)|^)(?:\w{2,6}-)?anthropic-(claude-.+?)(?:-v\d+(?::\d+)?)?$", re.ASCII)

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
    """Return the provider that makes a model: by the table, else by how its name begins; "" if neither says."""
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
    return f"{plain[: found.start()]}{found[1]}" if found else plain


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
