"""The command line: `kimi-proxy` and its commands."""

import sys
from typing import Annotated

import typer

from kimi_proxy import __version__
from kimi_proxy.cli import (
    agents,
    audit,
    config,
    demo,
    doctor,
    evaluation,
    init,
    mcp,
    pruning,
    report,
    serving,
    shell,
    store,
    team,
    upgrade,
)
from kimi_proxy.cli.console import remark
from kimi_proxy.cli.context import compress, memory
from kimi_proxy.cli.evaluation import evaluate
from kimi_proxy.core.errors import ConfigError, KimiProxyError

EXIT_REFUSED = 2
EXIT_CONFIG = 78  # EX_CONFIG of sysexits.h: a supervisor must not try again

app = typer.Typer(
    name="kimi-proxy",
    invoke_without_command=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"kimi-proxy {__version__}")
        raise typer.Exit


NEXT = """\
Keep the lines that matter in what coding agents read, and never lose the rest.

  kimi-proxy demo           watch it at work on an example; no provider is asked
  kimi-proxy audit          what your agents' past sessions cost, and would have saved
  kimi-proxy start          run the proxy, the pruner and the dashboard
  kimi-proxy init CLIENT    connect an agent to them; --undo takes it back
  kimi-proxy --help         every command
"""


@app.callback()
def about(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep the lines that matter in what coding agents read, and never lose the rest.

    `kimi-proxy start` runs the servers. `prune`, `recover` and `explain` work without them, on files and pipes.
    """
    if context.invoked_subcommand is None:
        print(NEXT, end="")


app.command()(serving.start)
app.command()(serving.pruner)
app.command()(demo.demo)
app.add_typer(mcp.mcp)
app.command()(agents.tools)
app.command(context_settings=agents.ARGUMENTS)(agents.run)
app.command()(init.init)
app.command()(pruning.prune)
app.command()(pruning.recover)
app.command()(pruning.explain)
app.command()(compress)
app.add_typer(memory)
app.command("eval")(evaluate)
app.command()(audit.audit)
app.command()(report.report)
app.add_typer(team.team)
app.command()(evaluation.replay)
app.add_typer(store.store)
app.add_typer(config.config)
app.command()(config.models)
app.command()(doctor.doctor)
app.command()(doctor.status)
app.command()(shell.completion)
app.command("upgrade-check")(upgrade.upgrade_check)


def main() -> None:
    """Run a command; an error of ours is one line and an exit code, never a traceback."""
    try:
        app(prog_name="kimi-proxy")
    except ConfigError as e:
        remark(str(e))
        sys.exit(EXIT_CONFIG)
    except KimiProxyError as e:
        remark(str(e))
        sys.exit(EXIT_REFUSED)
