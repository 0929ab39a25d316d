"""`kimi-proxy config` and `kimi-proxy models`: current settings with their sources, and known models."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_proxy.cli import console
from kimi_proxy.core.counting import count_of
from kimi_proxy.core.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import BaseModel

    from kimi_proxy.core.json import JsonObject
    from kimi_proxy.features.models.known import KnownModel
    from kimi_proxy.services.configuration import LoadedSettings

WIDTH = 44
EXAMPLE = "config.example.toml"
LIST_TIMEOUT_S, MAX_LIST_BYTES = 10.0, 16 * 1024**2


@click.group(cls=console.CommandGroup, invoke_without_command=True)
@console.config_option
@console.json_option
@click.pass_context
def config(context: click.Context, config_file: Path | None, as_json: bool) -> None:
    """Print the current settings and their sources, or create a file."""
    env = console.environment(config_file, must_exist=context.invoked_subcommand is None)
    if context.invoked_subcommand is not None:
        context.obj = env
        return
    settings = console.load_of_server(env)
    for each in settings.config.ignored:
        console.remark(each.warning)
    rows = list(settings_in_force(settings))
    if as_json:
        listed = [{"setting": name, "value": value, "origin": origin} for name, value, origin in rows]
        console.write_json({"file": str(settings.file) if settings.file else None, "settings": listed})
        return
    console.write("".join(f"# {line}\n" for line in sources(settings)))
    for name, value, origin in rows:
        console.write(f"{f'{name} = {_toml(value)}':<{WIDTH}} # {origin}\n")


def sources(settings: LoadedSettings) -> Iterator[str]:
    """Yield the file that was read (or would be), the variables from the .env, and the active providers."""
    place = settings.place
    yield f"configuration: {place}" if settings.file else f"configuration: no file; {place} would be read"
    if settings.env_file:
        yield f"from {settings.env_file}: {', '.join(settings.from_env_file)}"
    if settings.unread_env_file:
        yield f"not read: {settings.unread_env_file} (only a .env next to the configuration file is read)"
    config = settings.config
    on = [name for name, provider in config.providers.items() if provider.enabled]
    keyed = [name for name in config.on_demand if name in config.provider_keys]
    with_key = [f"{name} ({config.providers[name].key_variable})" for name in config.providers if name in keyed]
    yield f"providers: {', '.join(on) or 'none configured'}; on demand: " + (
        f"{', '.join(with_key)}, others with the client's own key" if with_key else "with the client's own key"
    )


def settings_in_force(settings: LoadedSettings) -> Iterator[tuple[str, object, str]]:
    """Yield the name, value and source of every setting; only configured providers and servers are included."""
    import tomllib

    from kimi_proxy.core.config import FileSettings
    from kimi_proxy.core.config.environment import over

    file, variables = over(tomllib.loads(settings.toml), settings.env)
    chosen = {place: _table(file, place) for place in ("providers", "models", "mcp.servers")}
    for name, value in _flatten(settings.config, FileSettings.model_fields, chosen):
        yield name, value, _origin(name, file, variables, settings)


def _flatten(
    section: BaseModel, names: Mapping[str, object], chosen: Mapping[str, Mapping[str, object]], path: str = ""
) -> Iterator[tuple[str, object]]:
    from pydantic import BaseModel

    from kimi_proxy.core.config.visible import show

    for name in names:
        value = getattr(section, name)
        place = f"{path}{name}"
        if place in chosen:
            for each in chosen[place]:
                if each in value:
                    yield from _flatten(value[each], type(value[each]).model_fields, {}, f"{place}.{each}.")
        elif isinstance(value, BaseModel):
            yield from _flatten(value, type(value).model_fields, chosen, f"{place}.")
        else:
            yield place, show(value)


def _table(settings: Mapping[str, object], path: str) -> Mapping[str, object]:
    """Return the table at a path such as `mcp.servers`, or an empty one."""
    table: object = settings
    for step in path.split("."):
        table = table.get(step) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) else {}


def _origin(name: str, file: Mapping[str, object], variables: Mapping[str, str], settings: LoadedSettings) -> str:
    from kimi_proxy.core.config import line_of

    steps = name.split(".")
    outwards = (".".join(steps[:end]) for end in range(len(steps), 0, -1))
    if variable := next((variables[place] for place in outwards if place in variables), ""):
        return f"{variable} in {settings.env_file if variable in settings.from_env_file else 'the environment'}"
    section, _, key = name.rpartition(".")
    if _table(file, section).get(key) is None:
        return "default"
    line = line_of(settings.toml, section, key)
    return f"file, line {line}" if line else "file"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {_toml(each)}' for name, each in value.items())}}}"
    return f'"{value}"' if isinstance(value, str) else str(value)


@config.command()
@console.config_option
@click.option("--yes", "-y", is_flag=True, help="Turn on every provider whose key is found.")
@click.pass_obj
def init(env: Mapping[str, str], config_file: Path | None, yes: bool) -> None:
    """Write a commented configuration file.

    Asks whether to turn on each provider whose key is in the environment. Never overwrites a file.
    """
    target = _new_file(config_file, env)
    found = _keyed_providers()
    chosen = [name for name, variable in found.items() if yes or _agrees(name, variable)]
    tables = "".join(f'[providers.{name}]\napi_key = "${{{found[name]}}}"\n\n' for name in chosen)
    head = "# Written by kimi-proxy config init. Keys stay in the environment, or in a .env next to this file.\n\n"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as opened:
            opened.write(head + tables + _comment_out(_example()))
    except FileExistsError as e:
        raise ConfigError(f"{target} already exists: edit it, or choose another file with --config") from e
    except OSError as e:
        raise ConfigError(f"cannot write {target}: {e.strerror}") from e
    console.write(f"{target}\n")
    console.remark(f"providers turned on: {', '.join(chosen) or 'none'}; kimi-proxy config shows the current settings")


def _new_file(given: Path | None, env: Mapping[str, str]) -> Path:
    """Return the file to write: the given one, or the one that would be read."""
    if given is not None or env.get("KIMI_PROXY_CONFIG"):
        return given or Path(env["KIMI_PROXY_CONFIG"])
    return console.load(Path(), env).place


def _keyed_providers() -> dict[str, str]:
    """Return the known providers whose key is in the environment, with its variable."""
    from kimi_proxy.core.config import parse
    from kimi_proxy.core.config.providers import KEY_ALIASES

    known = parse("", os.environ, Path())
    variables = {name: known.providers[name].key_variable for name in known.providers if name in known.provider_keys}
    return {
        name: variable if os.environ.get(variable, "").strip() else KEY_ALIASES[variable]
        for name, variable in variables.items()
    }


def _agrees(name: str, variable: str) -> bool:
    if not sys.stdin.isatty():
        console.remark(f"{variable} is set: --yes turns {name} on")
        return False
    return click.confirm(f"{variable} is set. Turn {name} on, so that requests for its models go there?", err=True)


def _example() -> str:
    from importlib.resources import files

    for place in (Path(str(files("kimi_proxy"))) / EXAMPLE, Path(__file__).parents[3] / EXAMPLE):
        if place.is_file():
            return place.read_text("utf-8")
    return ""


def _comment_out(text: str) -> str:
    return "".join(f"#{line}\n" if line and not line.startswith("#") else f"{line}\n" for line in text.split("\n")[:-1])


@click.command()
@click.argument("name", default="", metavar="[WORDS]", help="Only models whose names contain these words.")
@click.option("--offered", is_flag=True, help="List the models that the running proxy offers, as in /v1/models.")
@console.json_option
def models(name: str, offered: bool, as_json: bool) -> None:
    """List the known models: context windows, prices per million tokens, and the source and age of the figures.

    Values in [models] of the configuration override this list.
    """
    if offered:
        _list_offered(name, as_json)
        return
    from dataclasses import asdict
    from datetime import date

    from kimi_proxy.features.models.known import table

    rows = [row for row in table() if name.lower() in f"{row.provider}/{row.name}".lower()]
    if as_json:
        listed: list[JsonObject] = [asdict(row) for row in rows]
        console.write_json({"models": listed})
        return
    today = date.today()
    console.write("".join(_model_row(row, (today - date.fromisoformat(row.checked)).days) for row in rows))
    if rows:
        found = count_of(len(rows), "model")
        console.remark(f"{found}; prices in USD per million tokens: input, cached input, output")
    else:
        hint = "kimi-proxy models lists all, and [models] in config.toml adds yours"
        console.remark(f"no known model matches {name!r}: {hint}")


def _list_offered(words: str, as_json: bool) -> None:
    """Print the models that the running proxy offers to clients."""
    import asyncio

    from kimi_proxy.core import json
    from kimi_proxy.core.errors import ParseError, UpstreamUnreachable, UpstreamUnreadable
    from kimi_proxy.proxy.http import FAILURES, get

    config = console.server_config()
    address = console.proxy_address(config)
    if address is None:
        raise UpstreamUnreachable("the proxy is not running: start it with kimi-proxy start")
    headers = {"authorization": f"Bearer {config.token.get_secret_value()}"} if config.token else {}
    try:
        status, body = asyncio.run(get(f"{address}/v1/models", headers, LIST_TIMEOUT_S, MAX_LIST_BYTES))
        answer = json.decode(body)
    except (*FAILURES, ParseError) as e:
        raise UpstreamUnreadable(f"{address} did not list its models: {type(e).__name__}") from e
    found = answer.get("data") if isinstance(answer, Mapping) and status == 200 else None
    rows = found if isinstance(found, list) else []
    listed = [str(one["id"]) for one in rows if isinstance(one, Mapping) and "id" in one]
    chosen = [id for id in listed if words.lower() in id.lower()]
    console.write_json({"models": chosen}) if as_json else console.write("".join(f"{id}\n" for id in chosen))
    console.remark(f"{count_of(len(chosen), 'model')}, as {address}/v1/models lists them")


def _model_row(row: KnownModel, age_days: int) -> str:
    prices = " ".join(
        "-" if price is None else f"{price:g}" for price in (row.input_usd, row.cached_usd, row.output_usd)
    )
    age = "today" if age_days <= 0 else "1 day old" if age_days == 1 else f"{age_days} days old"
    return f"{row.provider + '/' + row.name:<52} {row.window:>9,}  {prices:<18} {age}, {row.source}\n"
