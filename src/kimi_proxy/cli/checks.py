"""The checks of `kimi-proxy doctor`: each returns its finding and how to fix it."""

import asyncio
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

from kimi_proxy.api.server import is_loopback
from kimi_proxy.assembly.store import open_store
from kimi_proxy.cli.console import load_of_server
from kimi_proxy.connect import agents
from kimi_proxy.connect.clients import CLIENTS, RECOVER_TEXT, SERVER_NAME
from kimi_proxy.connect.proxied import AUTO_MODE_SERVER, BASE_URL, FIRST_PARTY, explain_auto_mode, who_answers
from kimi_proxy.core import json
from kimi_proxy.core.caller import LOCAL, Caller
from kimi_proxy.core.chat.read import as_object
from kimi_proxy.core.config import Config
from kimi_proxy.core.config.environment import PREFIX, VARIABLES
from kimi_proxy.core.config.removed import REMOVED_VARIABLES
from kimi_proxy.core.counting import count_of
from kimi_proxy.core.errors import ConfigError, FileRefused, KimiProxyError, Reason
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.core.markers import new_id
from kimi_proxy.features.accounting import describe_safety_checks, sum_safety_checks
from kimi_proxy.features.agent_hooks import PATH
from kimi_proxy.features.chat.safety_checks import CHECK_TOKENS
from kimi_proxy.features.editing import jsonc
from kimi_proxy.features.models import Models
from kimi_proxy.features.models import known as known_models
from kimi_proxy.features.pruning.model import Scorers, load_scorers
from kimi_proxy.proxy.local_server import local_url, port_owner
from kimi_proxy.proxy.search import ripgrep
from kimi_proxy.services.store import sqlite_version
from kimi_proxy.services.store.protocols import Original, Store

Level = Literal["ok", "warning", "error"]

DOCTOR = Caller("doctor", is_admin=True)
LOOKS_BACK_S = 7 * 86_400
RECALL_REFUSED: Reason = "recall_refused"
MAX_REFUSED = 1_000
GRANT = "allow it: run kimi-proxy init claude again, or add mcp__pruner__recover_text to permissions.allow"
LOW_DISK_BYTES = 512 * 1024**2
SHORT_TOKEN_CHARS = 16
OUR_PREFIXES = ("KIMI_PROXY_", "KIMI_PRUNING_", "MCP_PRUNER_", "DEEPINFRA_")
TEST_VARIABLES = ("KIMI_PROXY_DEEP",)
_OFF = ("0", "false")
EVERYTHING = ("kimi_proxy.assembly.apps", "kimi_proxy.api.server", "kimi_proxy.assembly.runtime")


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    level: Level
    found: str
    fix: str = ""


def all_checks(env: Mapping[str, str]) -> Iterator[Check]:
    """Yield the results; a broken setting comes first, because it explains what fails after it."""
    yield Check("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield dependencies()
    yield scorer(load_scorers())
    yield Check("sqlite", "ok", sqlite_version)
    try:
        settings = load_of_server(env)
    except ConfigError as e:
        yield Check("configuration", "error", str(e), "correct the setting, then run kimi-proxy doctor again")
        return
    file = settings.file or f"no file, only defaults and environment; {settings.place} would be read"
    added = f"; from {settings.env_file}: {', '.join(settings.from_env_file)}" if settings.env_file else ""
    unread = (
        f"; {settings.unread_env_file} is not read, because it is not next to that file"
        if settings.unread_env_file
        else ""
    )
    yield Check("configuration", "ok", f"{file}{added}{unread}")
    for each in settings.config.ignored:
        yield Check("settings", "warning", f"ignored: {each.names}", each.advice)
    yield from misspelt(env)
    for problem in settings.config.key_problems:
        yield Check("providers", "warning", problem, "set it in the environment of kimi-proxy start")
    yield access(settings.config)
    yield backend(settings.config)
    yield from servers(settings.config)
    yield from windows(settings.config)
    yield from signed_requests(settings.config, env)
    yield from auto_mode(settings.config, env)
    yield from hooks_without_permission(env)
    yield search()
    yield port(settings.config)
    yield disk(settings.config)
    yield from asyncio.run(store(settings.config))


def dependencies() -> Check:
    """Import everything that the servers import, native code included."""
    try:
        for module in EVERYTHING:
            import_module(module)
    except ImportError as e:
        return Check("dependencies", "error", str(e), "reinstall kimi-proxy in a new virtual environment")
    return Check("dependencies", "ok", "all dependencies load")


def scorer(scorers: Scorers) -> Check:
    if scorers.fault:
        return Check("scorer", "warning", scorers.fault, "reinstall kimi-proxy")
    return Check("scorer", "ok", f"{len(scorers.learned)} learned models loaded")


def misspelt(env: Mapping[str, str]) -> Iterator[Check]:
    ours = {name for name in env if name.startswith(OUR_PREFIXES) and not name.startswith(PREFIX)}
    for name in sorted(ours - {*VARIABLES, *REMOVED_VARIABLES, *TEST_VARIABLES, *agents.VARIABLES}):
        yield Check("environment", "warning", f"unknown variable {name}", "check the spelling, or unset it")


def access(config: Config) -> Check:
    hosts = tuple(dict.fromkeys((config.mcp_pruner.host, config.proxy.host)))
    token = config.token
    for host in hosts:
        if not is_loopback(host) and token is None:
            fix = "set KIMI_PROXY_TOKEN, or listen on 127.0.0.1"
            return Check("access", "error", f"{host} can be reached from the network, and no token is set", fix)
    if token is not None and len(token.get_secret_value()) < SHORT_TOKEN_CHARS:
        fix = "set KIMI_PROXY_TOKEN to the output of: openssl rand -hex 32"
        return Check("access", "warning", "the token is short enough to guess", fix)
    needed = "token required" if token else "this machine only, no token"
    return Check("access", "ok", f"{' and '.join(hosts)}, {needed}")


def backend(config: Config) -> Check:
    name = config.mcp_pruner.backend
    if name == "deepinfra" and config.deepinfra_api_key is None:
        fix = "set DEEPINFRA_API_KEY, or KIMI_PRUNING_BACKEND=heuristic"
        return Check("backend", "warning", "no API key for deepinfra: lines are scored locally", fix)
    return Check("backend", "ok", name if name == "heuristic" else f"{name}: lines of text leave this machine")


def servers(config: Config) -> Iterator[Check]:
    """Yield each MCP server whose program is missing, or one check if all are found."""
    missing = [name for name in config.mcp.run if shutil.which(config.mcp.servers[name].command) is None]
    for name in missing:
        program = config.mcp.servers[name].command
        install = "install Node, which includes npx" if program == "npx" else f"install {program}"
        fix = f"{install}, or correct command in [mcp.servers.{name}]"
        yield Check("mcp servers", "error", f"{name} cannot be started: program {program!r} not found", fix)
    if config.mcp.run and not missing:
        yield Check("mcp servers", "ok", f"programs found for {', '.join(config.mcp.run)}")


def windows(config: Config) -> Iterator[Check]:
    """Yield each configured model whose context window is neither set nor known."""
    models = Models.of(config)
    for name, model in config.models.items():
        target = models.configured_target(name)
        if "max_context_size" not in model.model_fields_set and known_models.find(target.model) is None:
            fix = f'set max_context_size in [models."{name}"]'
            yield Check("models", "warning", f"unknown context window of {name}: 131,072 tokens assumed", fix)


def signed_requests(config: Config, env: Mapping[str, str]) -> Iterator[Check]:
    """Yield a warning if Claude Code signs its requests, because they are then sent unchanged."""
    if config.sanitizer.change_attested or FIRST_PARTY not in _claude_variables(Path.home(), env):
        return
    found = f"{FIRST_PARTY} makes Claude Code sign its requests: those to Anthropic are sent unchanged"
    fix = "unset it (kimi-proxy init claude --proxy does), or use hooks: kimi-proxy init claude --hooks"
    yield Check("claude code", "warning", found, fix)


def hooks_without_permission(env: Mapping[str, str]) -> Iterator[Check]:
    """Yield a warning if Claude Code's hooks shorten outputs that its model may not read back."""
    settings = _claude_settings(Path.home(), env)
    hooks = json.encode(as_object(settings.get("hooks"))).decode()
    allowed = as_object(settings.get("permissions")).get("allow")
    recall = f"mcp__{SERVER_NAME}__{RECOVER_TEXT}"
    if PATH in hooks and not (isinstance(allowed, list) and recall in allowed):
        found = f"its hooks shorten outputs, but {recall} is not in permissions.allow of its settings"
        yield Check("claude code", "warning", found, "run kimi-proxy init claude --hooks again")


def _claude_settings(home: Path, env: Mapping[str, str]) -> JsonObject:
    """Return Claude Code's settings; empty if it has none that can be read."""
    moved = env.get(CLIENTS["claude"].moved_by)
    folder = Path(moved) if moved else home / ".claude"
    try:
        return as_object(jsonc.load((folder / "settings.json").read_text("utf-8")))
    except (OSError, UnicodeDecodeError, FileRefused):
        return {}


def auto_mode(config: Config, env: Mapping[str, str]) -> Iterator[Check]:
    """Yield who checks the actions of Claude Code's auto mode, and whether its setting fits the providers."""
    answering = who_answers(config)
    variables = _claude_variables(Path.home(), env)
    checks_itself = variables.get(AUTO_MODE_SERVER) in _OFF
    again = "run kimi-proxy init claude --proxy again"
    costs = f"about {CHECK_TOKENS:,} tokens for each checked action"
    if answering == "anthropic":
        if checks_itself and BASE_URL in variables:
            found = (
                f"{AUTO_MODE_SERVER}=0 makes Claude Code check actions by itself, with {costs}: Anthropic does it free"
            )
            yield Check("auto mode", "warning", found, f"unset it, or {again}")
    elif answering == "others" and BASE_URL in variables and not checks_itself:
        found = f"Claude Code stops at the first command of auto mode, because {AUTO_MODE_SERVER}=0 is not set"
        yield Check("auto mode", "warning", found, f"{again}, or set it; checks then take {costs}")
    else:
        yield Check("auto mode", "ok", explain_auto_mode(answering))


def _claude_variables(home: Path, env: Mapping[str, str]) -> Mapping[str, JsonValue]:
    """Return the variables that Claude Code runs with."""
    return {**env, **as_object(_claude_settings(home, env).get("env"))}


def search() -> Check:
    rg = ripgrep(os.environ.get("PATH", ""))
    if rg is None:
        problem = "ripgrep (rg) not found: without it the grep tool is slower and rejects some patterns"
        return Check("search", "warning", problem, "install ripgrep")
    return Check("search", "ok", f"ripgrep is {rg}")


def port(config: Config) -> Check:
    pruner = config.mcp_pruner
    proxy = config.proxy
    if pruner.port and (pruner.host, pruner.port) == (proxy.host, proxy.port):
        fix = "choose another port with MCP_PRUNER_PORT or KIMI_PROXY_PORT"
        return Check("port", "error", f"the pruner and the proxy are both set to port {proxy.port}", fix)
    ports = (
        _port(pruner.host, pruner.port, "mcp-pruner", "MCP_PRUNER_PORT"),
        _port(proxy.host, proxy.port, "kimi-proxy", "KIMI_PROXY_PORT"),
    )
    taken = next((check for check in ports if check.level != "ok"), None)
    return taken or Check("port", "ok", "; ".join(check.found for check in ports))


def _port(host: str, number: int, server: str, variable: str) -> Check:
    address = local_url(host, number)
    found = port_owner(host, number)
    if found is None:
        return Check("port", "ok", f"{address} is free")
    if found.server == server:
        return Check("port", "ok", f"{address} is {found}, running")
    fix = f"stop that program, or choose another port with {variable}"
    return Check("port", "error", f"{address} is taken by {found}", fix)


def disk(config: Config) -> Check:
    free = shutil.disk_usage(_existing(config.home)).free
    found = f"{free / 1024**3:.1f} GiB free in {config.home}"
    if free < LOW_DISK_BYTES:
        return Check("disk", "warning", found, "free some space, or move the state directory with KIMI_PROXY_HOME")
    return Check("disk", "ok", found)


def _existing(path: Path) -> Path:
    return next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())


async def store(config: Config) -> Sequence[Check]:
    """Store an original and read it back, as a prune would, and look for agents that refuse to read cut text back."""
    try:
        opened = await open_store(config)
        try:
            checks = await _safety_checks(opened)
            return [await _round_trip(opened), *await _refused_recalls(opened), *checks]
        finally:
            await opened.close()
    except KimiProxyError as e:
        fix = "check that the directory is writable and has free space, or move it with KIMI_PROXY_HOME"
        return [Check("store", "error", f"{config.home}: {e.full}", fix)]


async def _safety_checks(opened: Store) -> Sequence[Check]:
    checks = sum_safety_checks(await opened.sessions.accounts(DOCTOR, time.time() - LOOKS_BACK_S))
    if not checks.requests:
        return []
    return [Check("safety checks", "ok", f"{describe_safety_checks(checks)} in the last 7 days")]


async def _refused_recalls(opened: Store) -> Sequence[Check]:
    lines = await opened.sessions.accounts(DOCTOR, time.time() - LOOKS_BACK_S)
    requests = sum(line.reasons.get(RECALL_REFUSED, 0) for line in lines)
    sessions = len(await opened.facts.keys(LOCAL, "recall_refused", MAX_REFUSED))
    checks: list[Check] = []
    if requests:
        found = (
            f"nothing new was cut in {count_of(requests, 'request')} of the last 7 days: the agent refused recover_text"
        )
        checks.append(Check("way back", "warning", found, GRANT))
    if sessions:
        found = (
            f"hooks cut nothing new in {count_of(sessions, 'session')}: the agent had no permission for recover_text"
        )
        checks.append(Check("way back", "warning", found, GRANT))
    return checks


async def _round_trip(opened: Store) -> Check:
    sent = Original(new_id("prn"), DOCTOR.scope, os.urandom(32), b"one\ntwo\n", b"{}")
    await opened.originals.keep(sent)
    usage = await opened.usage()
    if (await opened.originals.get(DOCTOR, sent.id)).text != sent.text:
        return Check(
            "store",
            "error",
            f"{usage.path} returned the wrong text",
            "move the file elsewhere and report this as a bug",
        )
    if usage.set_aside:
        files = ", ".join(usage.set_aside)
        return Check("store", "warning", f"damaged files were renamed: {files}", "inspect them, then delete them")
    return Check("store", "ok", f"{usage.path}: {usage.originals} originals, {usage.bytes_on_disk / 1024**2:.1f} MiB")
