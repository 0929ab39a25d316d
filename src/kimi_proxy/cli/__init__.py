"""The command line: `kimi-proxy` and its commands."""

import sys
from importlib import import_module

import click

from kimi_proxy import __version__
from kimi_proxy.cli.console import CommandGroup, remark
from kimi_proxy.core.errors import BadRequest, ConfigError, KimiProxyError

EXIT_REFUSED = 2
EXIT_CONFIG = 78  # EX_CONFIG of sysexits.h: a supervisor must not restart on it
EXIT_INTERRUPTED = 130  # what shells return after Ctrl-C

# Each command with its module and its name there.
COMMANDS = {
    "start": "serving:start",
    "pruner": "serving:pruner",
    "demo": "demo:demo",
    "mcp": "mcp:mcp",
    "gateway": "mcp:gateway",
    "tools": "agents:tools",
    "run": "agents:run",
    "init": "init:init",
    "uninstall": "init:uninstall",
    "prune": "pruning:prune",
    "recover": "pruning:recover",
    "explain": "pruning:explain",
    "compress": "context:compress",
    "memory": "context:memory",
    "eval": "evaluation:evaluate",
    "audit": "audit:audit",
    "report": "report:report",
    "sessions": "sessions:sessions",
    "team": "team:team",
    "replay": "evaluation:replay",
    "store": "store:store",
    "config": "config:config",
    "models": "config:models",
    "doctor": "doctor:doctor",
    "status": "doctor:status",
    "statusline": "doctor:statusline",
    "completion": "doctor:completion",
}

NEXT = """\
Keep the lines that matter in what coding agents read, and never lose the rest.

  kimi-proxy demo           watch it work on a scripted day; needs no provider
  kimi-proxy audit          what your agents' past sessions cost, and what you could have saved
  kimi-proxy start          run the proxy, the pruner and the dashboard
  kimi-proxy init CLIENT    connect an agent to them; --undo reverts it
  kimi-proxy --help         every command
"""


class LazyGroup(CommandGroup):
    """A group that imports the module of a command when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # For an unknown name, click suggests similar ones among the commands that are loaded.
        for name in (cmd_name,) if cmd_name in COMMANDS else COMMANDS:
            if name not in self.commands:
                module, _, attribute = COMMANDS[name].partition(":")
                self.add_command(getattr(import_module(f"kimi_proxy.cli.{module}"), attribute), name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None
        except click.BadParameter as e:
            if e.param is not None or isinstance(e, click.MissingParameter):
                raise
            # The command checked the value itself, so the usage line would not help.
            option = f"{e.param_hint}: " if str(e.param_hint or "").startswith("--") else ""
            raise BadRequest(f"{option}{e.message}") from e


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kimi-proxy", message="%(prog)s %(version)s", help="Print the version.")
@click.pass_context
def app(context: click.Context) -> None:
    """Keep the lines that matter in what coding agents read, and never lose the rest.

    `kimi-proxy start` runs the servers. `prune`, `recover` and `explain` work without them, on files and pipes.
    """
    if context.invoked_subcommand is None:
        print(NEXT, end="")


def main() -> None:
    """Run a command; an error of ours is one line and an exit code, never a traceback."""
    try:
        app(prog_name="kimi-proxy")
    except ConfigError as e:
        remark(e.full)
        sys.exit(EXIT_CONFIG)
    except KimiProxyError as e:
        remark(e.full)
        sys.exit(EXIT_REFUSED)
