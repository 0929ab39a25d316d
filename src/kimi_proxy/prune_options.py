"""The options of `prune` as data: click's, and those of a `prune` that a running server answers."""

from getopt import GetoptError, gnu_getopt
from typing import NamedTuple


class PruneOption(NamedTuple):
    """An option of `prune`, for the command line and for this module; required if it has no default."""

    key: str
    names: tuple[str, ...]
    type: type[str] | type[int] | type[float] | type[bool]
    default: object
    help: str
    limits: tuple[int, int | None] | None = None
    choices: tuple[str, ...] = ()


PRUNE_OPTIONS = (
    PruneOption("goal", ("--goal", "-g"), str, None, "What you want to find out, in your own words."),
    PruneOption(
        "source_type",
        ("--source-type",),
        str,
        "auto",
        "The kind of text; auto looks at the file's name, then at its lines.",
        choices=("auto", "code", "logs", "docs"),
    ),
    PruneOption(
        "max_prune_ratio", ("--max-prune-ratio",), float, 0.7, "Maximum share of lines that may be cut.", (0, 1)
    ),
    PruneOption("min_keep_lines", ("--min-keep-lines",), int, 20, "Minimum number of lines to keep.", (0, None)),
    PruneOption("timeout_ms", ("--timeout-ms",), int, 10_000, "On timeout the text is printed uncut.", (1, None)),
    PruneOption("annotate_lines", ("--annotate/--no-annotate",), bool, False, "Prefix each line with its number."),
    PruneOption("include_markers", ("--markers/--no-markers",), bool, True, "Print a marker where lines were cut."),
)


def read_options(arguments: list[str]) -> dict[str, object]:
    """Return the options by key, `file` and `json` among them, as click reads them, but without the time to load it.

    Raise ValueError for what cannot be read: the command line says what is wrong with it.
    """
    named = {name: option for option in PRUNE_OPTIONS for name in "/".join(option.names).split("/")}
    switches = {"--json", *(name for name, option in named.items() if option.type is bool)}
    long = [name for name in (*named, "--json") if name.startswith("--")]
    short = [name for name in named if not name.startswith("--")]
    if any(each.startswith("--") and each.partition("=")[0] not in long for each in arguments):
        raise ValueError("an unknown option, or the beginning of one")
    try:
        given, (file,) = gnu_getopt(
            arguments,
            "".join(f"{name[1:]}:" for name in short),
            [name[2:] if name in switches else f"{name[2:]}=" for name in long],
        )
    except GetoptError as e:
        raise ValueError(str(e)) from e
    chosen: dict[str, object] = {"file": file, "json": ("--json", "") in given}
    chosen |= {option.key: option.default for option in PRUNE_OPTIONS}
    for name, text in given:
        if option := named.get(name):
            chosen[option.key] = not name.startswith("--no-") if name in switches else option.type(text)
    if chosen["goal"] is None or any(o.choices and chosen[o.key] not in o.choices for o in PRUNE_OPTIONS):
        raise ValueError("an option is missing, or has a value that does not exist")
    return chosen
