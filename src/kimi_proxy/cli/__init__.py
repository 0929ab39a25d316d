"""The command line: `kimi-proxy` and its commands."""

import sys
from typing import Annotated

import click

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
)
from kimi_proxy.cli.commands import CommandGroup, Option
from kimi_proxy.cli.console import remark
from kimi_proxy.cli.context import compress, memory
from kimi_proxy.cli.evaluation import evaluate
from kimi_proxy.core.errors import ConfigError, KimiProxyError

EXIT_REFUSED = 2
EXIT_CONFIG = 78  # EX_CONFIG of sysexits.h: a supervisor must not try again


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"kimi-proxy {__version__}")
        raise click.exceptions.Exit


NEXT = """\
Keep the lines that matter in what coding agents read, and never lose the rest.

  kimi-proxy demo           watch it at work on an example; no provider is asked
  kimi-proxy audit          what your agents' past sessions cost, and would have saved
  kimi-proxy start          run the proxy, the pruner and the dashboard
  kimi-proxy init CLIENT    connect an agent to them; --undo takes it back
  kimi-proxy --help         every command
"""


def about(
    context: click.Context,
    version: Annotated[bool, Option("--version", callback=_show_version, help="Print the version.")] = False,
) -> None:
    """Keep the lines that matter in what coding agents read, and never lose the rest.

    `kimi-proxy start` runs the servers. `prune`, `recover` and `explain` work without them, on files and pipes.
    """
    if context.invoked_subcommand is None:
        print(NEXT, end="")


app = CommandGroup("kimi-proxy", about, alone=True)
app.add(serving.start)
app.add(serving.pruner)
app.add(demo.demo)
app.add_group(mcp.mcp)
app.add(agents.tools)
app.add(agents.run, settings=agents.ARGUMENTS)
app.add(init.init)
app.add(pruning.prune)
app.add(pruning.recover)
app.add(pruning.explain)
app.add(compress)
app.add_group(memory)
app.add(evaluate, "eval")
app.add(audit.audit)
app.add(report.report)
app.add_group(team.team)
app.add(evaluation.replay)
app.add_group(store.store)
app.add_group(config.config)
app.add(config.models)
app.add(doctor.doctor)
app.add(doctor.status)
app.add(shell.completion)
app.add(doctor.upgrade_check, "upgrade-check")


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
