"""config.example.toml is the list of every setting, so it has to be true."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from kimi_proxy.core.config import File, parse

EXAMPLE = (Path(__file__).parent.parent / "config.example.toml").read_text("utf-8")


def _keys(model: BaseModel, path: str = "") -> Iterator[str]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _keys(value, f"{path}{name}.")
        elif isinstance(value, Mapping) and value and all(isinstance(v, BaseModel) for v in value.values()):
            yield from _keys(next(iter(value.values())), f"{path}{name}.*.")
        else:
            yield f"{path}{name}"


def _written(table: Mapping[str, object], path: str = "") -> Iterator[str]:
    """The keys of a TOML table; the name of a server stands as `*`, for it may be any."""
    for name, value in table.items():
        step = f"{path}{name}." if path != "mcp.servers." else f"{path}*."
        if isinstance(value, dict) and value:
            yield from _written(value, step)
        else:
            yield f"{path}{name}"


def test_the_example_holds_every_key_and_no_other():
    assert set(_written(tomllib.loads(EXAMPLE))) == set(_keys(File()))


def test_the_example_as_it_stands_changes_nothing(tmp_path: Path):
    assert parse(EXAMPLE, {}, tmp_path) == parse("", {}, tmp_path)


def test_every_key_of_the_example_is_explained_on_its_own_line():
    keys = [line for line in EXAMPLE.splitlines() if "=" in line and not line.startswith("#")]

    assert [line for line in keys if " # " not in line] == []
