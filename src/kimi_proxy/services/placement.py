"""Where clients keep their files on this machine, and how they can start us."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.features.clients import Client, Scope


@dataclass(frozen=True, slots=True)
class Machine:
    """The directories that paths begin in: the project's, the user's, VS Code's."""

    here: Path
    home: Path
    code: Path
    env: Mapping[str, str]


def all_config_files(client: Client, scope: Scope, machine: Machine) -> tuple[Path, ...]:
    """Wherever this client may look for its servers."""
    if scope == "project":
        if not client.project:
            raise FileRefused(f"{client.title} has no servers of a project: use --user")
        return (machine.here / client.project,)
    moved = _moved(client, machine, Path(client.user[0]).name)
    if moved:
        return (moved,)
    return tuple(machine.home / path.replace("{code}", str(machine.code)) for path in client.user)


def config_files(client: Client, scope: Scope, machine: Machine) -> tuple[Path, ...]:
    """Those of them that are in use; the first if none is."""
    files = all_config_files(client, scope, machine)
    return tuple(file for file in files if file.exists()) or files[:1]


def rules_file(client: Client, scope: Scope, machine: Machine) -> Path:
    """The file of an agent's instructions."""
    if client.rules == ".clinerules":
        rules = machine.here / client.rules
        return rules if rules.is_file() else rules / "kimi-proxy.md"
    if scope == "project":
        return machine.here / client.rules
    if not client.user_rules:
        raise FileRefused(f"{client.title} keeps its user's rules in its settings: use --project, or paste them there")
    return _moved(client, machine, Path(client.user_rules).name) or machine.home / client.user_rules


def own_command(scope: Scope, path: str | None = None) -> tuple[str, ...]:
    """What starts us. A project's file is shared, so it holds a path only where the name is not enough."""
    script = Path(sys.executable).with_name("kimi-proxy")
    found = shutil.which("kimi-proxy", path=path)
    if scope == "project" and found and Path(found).resolve() == script.resolve():
        return ("kimi-proxy",)
    return (str(script),) if script.exists() else (sys.executable, "-P", "-m", "kimi_proxy")


def _moved(client: Client, machine: Machine, name: str) -> Path | None:
    """The variable of a client names a file, or a directory for all its files."""
    named = machine.env.get(client.moved_by) if client.moved_by else None
    if not named:
        return None
    return Path(named) if Path(named).suffix else Path(named) / name
