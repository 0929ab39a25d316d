"""config.example.toml is the list of every setting, so it has to be true."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from kimi_proxy.core.config import FileSettings, parse
from kimi_proxy.core.config.providers import Model
from kimi_proxy.core.config.team import BudgetSettings

EXAMPLE = (Path(__file__).parent.parent / "config.example.toml").read_text("utf-8")
# A table that only shows how one could look is commented out, without a space after the sign.
EVERYTHING = re.sub(r"^#(?=\S)", "", EXAMPLE, flags=re.M)

# Tables whose names anybody may choose, and what they hold.
NAMED = {
    "mcp.servers.": None,
    "providers.": None,
    "models.": Model(provider=""),
    "team.budgets.": BudgetSettings(requests=1),
}


def _keys(model: BaseModel, path: str = "") -> Iterator[str]:
    for name in type(model).model_fields:
        value, step = getattr(model, name), f"{path}{name}."
        if isinstance(value, BaseModel):
            yield from _keys(value, step)
        elif step in NAMED:
            yield from _keys(NAMED[step] or next(iter(value.values())), f"{step}*.")
        else:
            yield f"{path}{name}"


def _written(table: Mapping[str, object], path: str = "") -> Iterator[str]:
    """The keys of a TOML table; a name that may be any stands as `*`."""
    for name, value in table.items():
        step = f"{path}*." if path in NAMED else f"{path}{name}."
        if isinstance(value, dict) and value:
            yield from _written(value, step)
        else:
            yield f"{path}{name}"


def test_the_example_holds_every_key_and_no_other():
    assert set(_written(tomllib.loads(EVERYTHING))) == set(_keys(FileSettings()))


def test_the_example_as_it_stands_changes_nothing(tmp_path: Path):
    assert parse(EXAMPLE, {}, tmp_path) == parse("", {}, tmp_path)


def test_the_example_with_its_comments_taken_away_is_still_accepted(tmp_path: Path):
    config = parse(EVERYTHING, {}, tmp_path)

    assert config.models["nvidia/kimi-k2.5"].model == "moonshotai/kimi-k2.5"


def test_every_provider_that_is_known_is_shown():
    assert set(tomllib.loads(EVERYTHING)["providers"]) == set(FileSettings().providers)


def test_every_key_of_the_example_is_explained_on_its_own_line():
    keys = [line for line in EVERYTHING.splitlines() if "=" in line and not line.startswith("#")]

    assert [line for line in keys if " # " not in line] == []
