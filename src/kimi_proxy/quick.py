"""Fast paths of `kimi-proxy` that load nothing else: its version, and responses from a running server.

Importing the command line, the settings and the engine takes ten times as long as asking a server that has them.
Anything unexpected (no server, an unknown option) is left to the command line, before anything is written or sent."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import TYPE_CHECKING

from kimi_proxy import __version__, running
from kimi_proxy.running import JsonDict, ask_server

if TYPE_CHECKING:
    from collections.abc import Mapping

MARGIN_S = 5.0
MAX_CHARS = 2_000_000
STDIN = "-"
SETTINGS = ("MCP_PRUNER_HOST", "KIMI_PROXY_DATABASE_URL", "KIMI_PROXY__")  # variables that the command line reads
DEFAULT_PORT = 8006
DEFAULT_MAX_BYTES = 2 * 1024**3
EXIT_NOT_RUNNING = 3
TEXT_SAMPLE = 8192
ODD_SHARE = 0.1  # of bytes that do not occur in text; text files with encoding errors have fewer

_IN_TEXT = "\t\n\r\f\b\x1b"

ADVICE = {
    "timeout": "time ran out, so nothing was cut: raise --timeout-ms",
    "input_too_large": "the text is longer than max_input_chars, so nothing was cut: prune it in parts",
    "constraints_unmet": "the limits leave nothing to cut: raise --max-prune-ratio or lower --min-keep-lines",
    "recovery_unavailable": "the original could not be stored, so nothing was cut: run kimi-proxy doctor",
    "deepinfra_error": "DeepInfra returned no scores, so local scores were used",
}


def answer(arguments: list[str]) -> int | None:
    """Return the exit code if the command was handled; None to leave it to the command line."""
    if arguments == ["--version"]:
        print(f"kimi-proxy {__version__}")
        return 0
    try:
        if arguments in (["status"], ["status", "--json"]):
            return _status("--json" in arguments)
        if arguments[:1] == ["prune"]:
            return _prune(arguments[1:])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _status(as_json: bool) -> int | None:
    if os.environ.get("KIMI_PROXY_CONFIG"):
        return None
    try:
        addresses = running.addresses()
    except FileNotFoundError:
        addresses = None
    if addresses is None:
        return _not_running(as_json)
    health = ask_server(addresses["pruner"], "GET", "/health")
    store = ask_server(addresses["proxy"], "GET", "/api/store")
    if health is None or store is None or health["server"] != "mcp-pruner":
        return None
    url = addresses["pruner"]
    if as_json:
        server = {name: health[name] for name in ("server", "version", "status")}
        file = store.pop("configuration")
        about = {"running": True, "url": url, "server": server, "version": __version__}
        more = {"configuration": file, "store": store, "newest_session": newest_session(addresses["proxy"])}
        print(json.dumps({**about, **more}, ensure_ascii=False))
    else:
        print(f"running: {health['server']} {health['version']} on {url}, {health['status']}")
        print(room(store) + describe_session(newest_session(addresses["proxy"])))
    return 0


def newest_session(address: str) -> JsonDict | None:
    """Return the context window, today's savings and the prompt cache of the newest session, if there is one."""
    try:
        listed = ask_server(address, "GET", "/api/sessions?limit=1")
        sessions = listed.get("sessions") if listed else None
        id = sessions[0]["id"] if isinstance(sessions, list) and sessions else None
        return ask_server(address, "GET", f"/api/statusline?session={id}") if id else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def describe_session(found: JsonDict | None) -> str:
    return f"\nnewest session: {found['text']}" if found else ""


def _not_running(as_json: bool) -> int | None:
    """Report that nothing is running, unless a setting other than the port could change that."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    folders = (os.environ.get("KIMI_PROXY_FOLDER") or ".", f"{config}/kimi-proxy")
    files = [f"{folder}/{name}" for folder in folders for name in ("config.toml", ".env")]
    given = [name for name in os.environ if name.startswith(SETTINGS) and os.environ[name]]
    port = int(os.environ.get("MCP_PRUNER_PORT") or DEFAULT_PORT)
    if given or any(map(os.path.exists, files)) or not port or _is_taken(port):
        return None
    from kimi_proxy.services.store import file_usage

    url = f"http://127.0.0.1:{port}"
    store = file_usage(running.home(), DEFAULT_MAX_BYTES)
    if as_json:
        about = {"running": False, "url": url, "server": None, "version": __version__, "configuration": None}
        print(json.dumps({**about, "store": store, "newest_session": None}, ensure_ascii=False))
    else:
        print(f"not running: no response on {url}; start it with kimi-proxy start")
        print(room(store))
    return EXIT_NOT_RUNNING


def _is_taken(port: int) -> bool:
    with socket.socket() as line:
        line.settimeout(running.TIMEOUT_S)
        return line.connect_ex(("127.0.0.1", port)) == 0


def room(store: JsonDict) -> str:
    """Describe the size of a store."""
    used, most = (float(str(store[name])) / 1024**2 for name in ("bytes_on_disk", "max_bytes"))
    return f"store: {store['path']}, {store['state']}, {store['originals']} originals, {used:.1f} of {most:.0f} MiB"


def _prune(arguments: list[str]) -> int | None:
    addresses = running.addresses()
    if addresses is None:
        return None
    from kimi_proxy.features.pruning.source_type import guess
    from kimi_proxy.prune_options import read_options

    options = read_options(arguments)

    file = str(options["file"])
    raw = _bytes(file)
    if raw is None or is_binary(raw):
        return None
    text = raw.decode("utf-8", "surrogateescape")
    if len(text) > MAX_CHARS:
        return None
    kind = guess(file, text) if options["source_type"] == "auto" else str(options["source_type"])
    names = ("max_prune_ratio", "min_keep_lines", "timeout_ms", "annotate_lines", "include_markers")
    asked = {"text": text, "goal_hint": options["goal"], "source_type": kind}
    params = {"name": "prune_text", "arguments": asked | {"options": {name: options[name] for name in names}}}
    call: JsonDict = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    given = ask_server(addresses["pruner"], "POST", "/rpc", call, float(str(options["timeout_ms"])) / 1000 + MARGIN_S)
    result = given.get("result") if given is not None else None
    found = result.get("structuredContent") if isinstance(result, dict) else None
    if not isinstance(found, dict):
        return None
    for line in savings(found, kind):
        print(f"kimi-proxy: {line}", file=sys.stderr)
    shown = json.dumps(found, ensure_ascii=False) + "\n" if options["json"] else str(found["pruned_text"])
    sys.stdout.buffer.write(shown.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
    return 0


def is_binary(raw: bytes) -> bool:
    """Return whether the bytes are not text: they contain NUL and many control characters."""
    sample = raw[:TEXT_SAMPLE]
    if b"\0" not in sample:
        return False
    odd = sum(1 for each in sample.decode("utf-8", "replace") if each == "�" or (each < " " and each not in _IN_TEXT))
    return odd > ODD_SHARE * len(sample)


def savings(found: Mapping[str, object], kind: str) -> list[str]:
    """Return the remarks on a prune: its warnings with advice, and what was kept."""
    stats = found["stats"]
    warnings = found["warnings"]
    assert isinstance(stats, dict)  # noqa: S101 - for the type checker: the pruner's own answer
    assert isinstance(warnings, list)  # noqa: S101
    if stats["original_lines"] == 0:
        return ["the text is empty: there is nothing to prune"]
    said = [f"{code}: {ADVICE[code]}" if code in ADVICE else str(code) for code in warnings]
    lines = stats["original_lines"]
    if not found["annotations"]:
        return [*said, f"{'1 line' if lines == 1 else f'{lines} lines'} of {kind}, nothing cut"]
    kept = f"{stats['kept_lines']} of {lines} lines of {kind} kept"
    tokens = f"{stats['tokens_est_after']} of {stats['tokens_est_before']} tokens"
    return [*said, f"{kept}, {tokens}; restore the rest: kimi-proxy recover {found['prune_id']}"]


def _bytes(file: str) -> bytes | None:
    """Return a file's bytes. Standard input is left to the command line, because it can be read only once."""
    if file == STDIN:
        return None
    with open(file, "rb") as opened:  # noqa: PTH123 - loading pathlib takes longer than reading the file
        return opened.read()
