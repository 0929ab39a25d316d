"""Where a run keeps its logs and the configuration that it hands to its agent; only its owner can look."""

import shutil
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from kimi_proxy.core import jsontext
from kimi_proxy.core.ids import new_id
from kimi_proxy.features.advertising import ClaudeServer
from kimi_proxy.services.store.private import private_file

RUNS = "runs"
EVENTS = "events.log"
SERVER = "server.log"
CONFIG = "mcp.json"
KEPT = 20
KEPT_S = 7 * 86_400
LAST_BYTES = 4096


def new(home: Path, now: float | None = None) -> Path:
    """A folder for one run; where the state directory cannot be written, a temporary one."""
    moment = time.time() if now is None else now
    name = f"{datetime.fromtimestamp(moment, UTC):%Y%m%d-%H%M%S}-{new_id('run')}"
    folder = home.absolute() / RUNS / name
    try:
        private_file(folder / EVENTS)
        _forget_old(folder.parent, moment)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix=f"kimi-proxy-{name}-"))
        private_file(folder / EVENTS)
    private_file(folder / SERVER)
    return folder


def write_config(folder: Path, servers: dict[str, ClaudeServer]) -> None:
    """Say which servers there are now. The file holds a token."""
    private_file(folder / CONFIG)
    (folder / CONFIG).write_bytes(jsontext.encode({"mcpServers": servers}))


def last_words(folder: Path) -> str:
    """The last line that the server wrote on standard error."""
    try:
        written = (folder / SERVER).read_bytes()[-LAST_BYTES:]
    except OSError:
        return ""
    lines = written.decode("utf-8", "replace").strip().split("\n")
    return lines[-1].strip()[:300]


def _forget_old(runs: Path, now: float) -> None:
    """Names begin with their time. A young folder may belong to a run that still goes on."""
    for folder in sorted(runs.iterdir(), reverse=True)[KEPT:]:
        if now - folder.stat().st_mtime > KEPT_S:
            shutil.rmtree(folder, ignore_errors=True)
