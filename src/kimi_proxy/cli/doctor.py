"""`kimi-proxy doctor`, `status` and `completion`: the installation itself."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kimi_proxy import __version__
from kimi_proxy.cli import console
from kimi_proxy.cli.pruning import with_store
from kimi_proxy.quick import describe_session, newest_session, room

if TYPE_CHECKING:
    from kimi_proxy.cli.checks import Check
    from kimi_proxy.cli.opt_in import Feature
    from kimi_proxy.proxy.local_server import PortOwner


SEVERITY = ("ok", "warning", "error")  # the index is the exit code
COLOURS = {"ok": "32", "warning": "33", "error": "31"}


@click.command()
@console.config_option
@click.option("--all", "lists_all", is_flag=True, help="Also list what is off by default, and how to turn it on.")
@console.json_option
def doctor(config_file: Path | None, lists_all: bool, as_json: bool) -> None:
    """Check the installation and print how to fix each problem.

    Exit code: 0 no problems, 1 warnings, 2 errors.
    """
    env = console.environment(config_file)
    try:
        import platformdirs  # noqa: F401 - the settings need it before any check can report

        from kimi_proxy.cli.checks import all_checks
        from kimi_proxy.cli.opt_in import opt_in_features
    except ImportError as e:
        console.remark(f"a dependency cannot be loaded: {e}; reinstall kimi-proxy in a new virtual environment")
        raise click.exceptions.Exit(SEVERITY.index("error")) from e

    console.log_errors_only()  # the check of the store reports what the store logs
    checks = []
    for check in all_checks(env):
        checks.append(check)
        if not as_json:
            console.write(_row(check))
    worst = max(SEVERITY.index(check.level) for check in checks)
    optional = opt_in_features(env) if lists_all else None
    if as_json:
        features = {"optional": [asdict(each) for each in optional.features]} if optional else {}
        console.write_json({"verdict": SEVERITY[worst], "checks": [asdict(check) for check in checks], **features})
    elif optional:
        console.write(f"\nOff by default; settings belong in {optional.file}\n")
        console.write("".join(_feature_row(each) for each in optional.features))
    raise click.exceptions.Exit(worst)


def _row(check: Check) -> str:
    level = console.colour(f"{check.level:<8}", COLOURS[check.level])
    return f"{level} {check.name:<14} {check.found}\n" + (f"{'':24}→ {check.fix}\n" if check.fix else "")


def _feature_row(feature: Feature) -> str:
    state = console.colour(f"{'on' if feature.is_on else 'off':<8}", COLOURS["ok" if feature.is_on else "warning"])
    return f"{state} {feature.name:<22} {feature.effect}\n{'':32}→ {feature.turn_on}\n"


@click.command()
@console.json_option
def status(as_json: bool) -> None:
    """Print whether kimi-proxy is running, its address, the size of its store, and its newest session.

    For that session: how full its context window is, today's savings, and how long its prompt cache stays valid.

    Exit code: 0 running, 3 not running.
    """
    from kimi_proxy.cli.console import proxy_address
    from kimi_proxy.proxy.local_server import local_url, port_owner

    settings = console.load_of_server()
    where = settings.config.mcp_pruner
    found = port_owner(where.host, where.port)
    usage = with_store(lambda store, who: store.usage())
    running = found is not None and bool(found.server)
    address = proxy_address(settings.config) if running else None
    session = newest_session(address) if address else None
    if as_json:
        console.write_json(
            {
                "running": running,
                "url": local_url(where.host, where.port),
                "server": found,
                "version": __version__,
                "configuration": str(settings.file) if settings.file else None,
                "store": usage,
                "newest_session": session,
            }
        )
    else:
        console.write(
            _state(found, local_url(where.host, where.port)) + room(asdict(usage)) + describe_session(session) + "\n"
        )
    raise click.exceptions.Exit(0 if running else console.EXIT_NOT_RUNNING)


def _state(found: PortOwner | None, address: str) -> str:
    if found is None:
        return f"not running: no response on {address}; start it with kimi-proxy start\n"
    if not found.server:
        return f"not running: {address} is taken by {found}\n"
    return f"running: {found} on {address}, {found.status}\n"


@click.command()
def statusline() -> None:
    """Print a line for Claude Code's status bar: context window, today's savings, remaining prompt cache lifetime.

    Claude Code runs it and passes its session on standard input; `kimi-proxy init claude --statusline` sets it up.
    It prints nothing if no server is running.
    """
    from kimi_proxy.cli.console import proxy_address, server_config
    from kimi_proxy.running import print_statusline

    if (address := proxy_address(server_config())) is not None:
        print_statusline(address)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]), metavar="SHELL", help="bash, zsh or fish.")
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a completion script for a shell.

    Save it where your shell looks for completions. Needs bash 4.4 or newer.

    Example: kimi-proxy completion bash > ~/.local/share/bash-completion/completions/kimi-proxy

    Example: kimi-proxy completion fish > ~/.config/fish/completions/kimi-proxy.fish

    Example: kimi-proxy completion zsh > ~/.zfunc/_kimi-proxy
    """
    from click.shell_completion import get_completion_class

    if found := get_completion_class(shell):
        script = found(context.find_root().command, {}, "kimi-proxy", "_KIMI_PROXY_COMPLETE").source()
        # zsh loads a file in $fpath only once, so click's condition would be false from the second completion on.
        console.write(script.replace("$zsh_eval_context[-1] == loadautofunc", "$funcstack[1] == _kimi-proxy"))
