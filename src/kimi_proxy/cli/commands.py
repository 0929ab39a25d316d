"""Commands made of functions: what a parameter's type and its `Option` or `Argument` say, as click has it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import click

EXIT_INTERRUPTED = 130  # as shells say that Ctrl-C ended a command
REQUIRED = inspect.Parameter.empty

Function = TypeVar("Function", bound=Callable[..., None])
ValueType: TypeAlias = "click.ParamType[object]"


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """What is said of a parameter beside its name, type and default."""

    help: str = ""
    metavar: str | None = None
    min: float | None = None
    max: float | None = None
    exists: bool = False
    file_okay: bool = True


@dataclass(frozen=True, slots=True, init=False)
class Option(ParameterSpec):
    """An option; without `names` it is called as the function's parameter. `callback` runs before all else."""

    names: tuple[str, ...] = ()
    callback: Callable[[bool], None] | None = None

    def __init__(
        self,
        *names: str,
        help: str = "",
        metavar: str | None = None,
        min: float | None = None,
        max: float | None = None,
        exists: bool = False,
        file_okay: bool = True,
        callback: Callable[[bool], None] | None = None,
    ) -> None:
        ParameterSpec.__init__(self, help, metavar, min, max, exists, file_okay)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "callback", callback)


@dataclass(frozen=True, slots=True)
class Argument(ParameterSpec):
    """A value that is known by its place."""


class CommandGroup(click.Group):
    """Commands under one name, in the order in which they were added; each is built when it is asked for.

    `about` runs before the command, and takes the group's own options. Its docstring is the help, unless `help` is.
    """

    def __init__(self, name: str, about: Callable[..., None] | None = None, *, help: str = "", alone: bool = False):
        """With `alone` the group may be called without a command, else that shows its help."""
        text = help or (inspect.getdoc(about) if about else "") or ""
        super().__init__(
            name,
            invoke_without_command=alone,
            subcommand_metavar="COMMAND [ARGS]...",
            context_settings=dict(_SETTINGS),
            callback=_caller(about) if about else None,
            params=_parameters(about) if about else [],
            help=text,
            short_help=_first_sentence(text),
        )
        self._functions: dict[str, tuple[Callable[..., None], Mapping[str, object]]] = {}
        self._order: list[str] = []

    def add(self, function: Function, name: str = "", settings: Mapping[str, object] = {}) -> Function:
        """Add a command, by default under the function's name; also a decorator. `settings` are of its context."""
        self._order.append(name or function.__name__)
        self._functions[self._order[-1]] = function, settings
        return function

    def add_group(self, group: CommandGroup) -> None:
        self.add_command(group)
        self._order.append(group.name or "")

    def list_commands(self, ctx: click.Context) -> list[str]:
        return self._order

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands and cmd_name in self._functions:
            self.add_command(_command(cmd_name, *self._functions[cmd_name]))
        return self.commands.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self._order:
            self.all_commands(ctx)  # a near name is looked for among those that were built
        return super().resolve_command(ctx, args)

    def all_commands(self, ctx: click.Context) -> dict[str, click.Command]:
        """Return every command by its name."""
        return {name: found for name in self._order if (found := self.get_command(ctx, name))}


_SETTINGS: Mapping[str, object] = {"help_option_names": ["-h", "--help"]}


def _command(name: str, function: Callable[..., None], settings: Mapping[str, object]) -> click.Command:
    return click.Command(
        name,
        context_settings={**_SETTINGS, **settings},
        callback=_caller(function),
        params=_parameters(function),
        help=inspect.getdoc(function),
        short_help=_first_sentence(inspect.getdoc(function) or ""),
    )


def _first_sentence(text: str) -> str:
    """Return what a list of commands says of one, whole: click would end it after 45 characters."""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".") + "."


def _caller(function: Callable[..., None]) -> Callable[..., None]:
    """Return what click calls: a function of the values by their names."""
    parameters = inspect.signature(function).parameters

    def call(**values: object) -> None:
        given = {
            # Of what may be repeated there is an empty tuple where it was left out.
            name: (list(value) or parameters[name].default) if isinstance(value, tuple) else value
            for name, value in values.items()
        }
        if "context" in parameters:
            given["context"] = click.get_current_context()
        try:
            function(**given)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None

    return call


def _parameters(function: Callable[..., None]) -> list[click.Parameter]:
    hints = get_type_hints(function, include_extras=True)
    return [
        _parameter(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "context"
    ]


def _parameter(name: str, hint: object, default: object) -> click.Parameter:
    """Return the parameter of click for one of a function; without a default it is required."""
    hint, *specs = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    spec = next((one for one in specs if isinstance(one, ParameterSpec)), Option())
    plain, is_list = _plain(hint)
    if isinstance(spec, Option):
        make = _option(name, spec, plain, is_list, default)
    else:
        make = _argument(name, spec, plain, is_list, default)
    return make() if default is REQUIRED or is_list else make(default=default)


def _argument(
    name: str, spec: ParameterSpec, plain: object, is_list: bool, default: object
) -> Callable[..., click.Parameter]:
    return partial(
        click.Argument,
        [name],
        required=default is REQUIRED,
        help=f"{spec.help}  [default: {default}]" if isinstance(default, Path) else spec.help,
        type=_type(plain, spec),
        metavar=_shown(spec.metavar or name.upper(), default is REQUIRED, is_list),
        nargs=-1 if is_list else 1,
    )


def _shown(metavar: str, required: bool, is_list: bool) -> str:
    """Return how a usage line has an argument: in brackets if it may be left out, with dots if it may be repeated."""
    return (metavar if required else f"[{metavar}]") + ("..." if is_list else "")


def _option(name: str, spec: Option, plain: object, is_list: bool, default: object) -> Callable[..., click.Parameter]:
    callback = spec.callback
    return partial(
        click.Option,
        [*(spec.names or (f"--{name.replace('_', '-')}",)), name],
        required=default is REQUIRED,
        help=spec.help,
        type=None if plain is bool else _type(plain, spec),
        is_flag=plain is bool or None,  # False would let the value be left out
        metavar=spec.metavar,
        multiple=is_list,
        show_default=default not in ("", None),
        is_eager=callback is not None,
        expose_value=callback is None,
        callback=None if callback is None else lambda context, parameter, value: callback(value),
    )


def _plain(hint: object) -> tuple[object, bool]:
    """Return a type without `None` and without its list, and whether it was one."""
    if get_origin(hint) in (Union, UnionType):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    if get_origin(hint) is list:
        return get_args(hint)[0], True
    return hint, False


def _type(plain: object, spec: ParameterSpec) -> ValueType | type | None:
    """Return what reads a value. Raise TypeError for a type that no command has had yet."""
    if get_origin(plain) is Literal:
        return click.Choice(get_args(plain))
    if plain is Path:
        return click.Path(exists=spec.exists, file_okay=spec.file_okay, path_type=Path)
    if plain is int and (spec.min is not None or spec.max is not None):
        return click.IntRange(_whole(spec.min), _whole(spec.max))
    if plain is float and (spec.min is not None or spec.max is not None):
        return click.FloatRange(spec.min, spec.max)
    if isinstance(plain, type) and plain in (str, int, float, bool):
        return plain
    raise TypeError(f"a command cannot read {plain!r}")


def _whole(limit: float | None) -> int | None:
    return None if limit is None else int(limit)
