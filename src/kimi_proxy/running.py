"""The running server of this home: its addresses, requests to it, and the status line.

Claude Code runs `kimi-proxy statusline` often and loads this module each time, so it has few imports: without typing,
urllib and a codec for host names it takes 18 ms of CPU time instead of 26."""

from __future__ import annotations

import json
import os
import socket
import sys

TIMEOUT_S = 2.0
STATUSLINE_TIMEOUT_S = 0.3  # the agent redraws its status bar often: skip a slow server

JsonDict = dict[str, object]


def statusline() -> int:
    """Print a line for the agent's status bar, from the server that runs; nothing if there is none."""
    try:
        found = addresses()
    except FileNotFoundError:
        return 0
    if found is not None:
        print_statusline(found["proxy"])
    return 0


def print_statusline(address: str) -> None:
    """Print what the server at `address` says of the session that Claude Code describes on standard input."""
    try:
        described = json.loads(sys.stdin.buffer.read() or b"{}")
        session = described.get("session_id") if isinstance(described, dict) else None
        quoted = "".join(f"%{byte:02X}" for byte in str(session or "").encode("utf-8", "replace"))
        found = ask_server(address, "GET", f"/api/statusline?session={quoted}", timeout_s=STATUSLINE_TIMEOUT_S)
    except (OSError, ValueError):
        return
    if found is not None:
        print(str(found["text"]))


def addresses() -> dict[str, str] | None:
    """Return the addresses of the `start` that runs with this home, which it wrote down itself."""
    with open(f"{home()}/run/start.json", "rb") as opened:  # noqa: PTH123
        noted = json.load(opened)
    return dict(noted["addresses"]) if noted["born"] == _born(int(noted["pid"])) else None


def home() -> str:
    if given := os.environ.get("KIMI_PROXY_HOME"):
        return os.path.expanduser(given)  # noqa: PTH111
    if sys.platform != "linux":
        raise ValueError("the platform's folder is known to the command line")
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111
    return f"{state}/kimi-proxy"


def _born(number: int) -> str:
    """Return when a process began, as proxy/process.py writes it; raise OSError if there is none."""
    with open(f"/proc/{number}/stat") as stat, open("/proc/sys/kernel/random/boot_id") as boot:  # noqa: PTH123
        fields = stat.read().rpartition(")")[2].split()
        return f"{fields[19]} {boot.read().strip()}"


def ask_server(
    url: str, method: str, path: str, body: JsonDict | None = None, timeout_s: float = TIMEOUT_S
) -> JsonDict | None:
    """Return the JSON of a server on this machine; None if it answers anything else."""
    place = url.partition("://")[2].partition("/")[0]
    payload = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {place}", "Connection: close"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(payload)}"]
    if token := os.environ.get("KIMI_PROXY_TOKEN", "").strip():
        lines.append(f"Authorization: Bearer {token}")
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as line:
        line.settimeout(timeout_s)
        # Not create_connection: it loads a codec for international names, for the address of this machine.
        line.connect((host, int(port)))
        line.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + payload)
        pieces = []
        while piece := line.recv(1 << 16):
            pieces.append(piece)
    head, _, rest = b"".join(pieces).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200") or b"transfer-encoding" in head.lower():
        return None
    found = json.loads(rest)
    return found if isinstance(found, dict) else None
