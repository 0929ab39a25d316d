"""The image without a Docker engine: how much what deploy/Dockerfile installs weighs, and when its command is ready."""

import os
import re
import statistics
import subprocess
import tempfile
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from timing import table

ROOT = Path(__file__).parents[2]
STARTS = 9
BASE_MB = 53  # gcr.io/distroless/python3-debian12, unpacked; it cannot be had without a registry
MAX_MB, MAX_READY_S = 250, 2.0
LARGEST = 8


def installed(folder: Path) -> Path:
    """Run what the Dockerfile runs in its first stage after apt-get, in `folder`; return what it copies to the last."""
    steps = re.findall(r"^RUN ((?:.*\\\n)*.*)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.M)
    command = "\n".join(step.replace("\\\n", " ") for step in steps if "apt-get" not in step)
    command = re.sub(r"&& chown \S+ \S+", "", command)
    for name in ("/build", "/opt/kimi-proxy", "/wheel", "/data"):
        command = re.sub(rf"(?<![\w.]){name}\b", f"{folder}{name}", command)
    (folder / "opt").mkdir()
    env = {**os.environ, "PIP_QUIET": "2"}
    subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=ROOT, env=env, check=True)
    return folder / "opt" / "kimi-proxy"


def size_mb(folder: Path) -> float:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()) / 1e6


def ready_s(program: Path, home: Path, number: int) -> float:
    """Return the seconds from the start of the image's command to the first 200 of its health check."""
    port = 20_000 + os.getpid() % 20_000 + 2 * number
    env = {"PATH": os.environ["PATH"], "KIMI_PROXY_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    env |= {"KIMI_PROXY_PORT": str(port), "MCP_PRUNER_PORT": str(port + 1)}
    began = time.perf_counter()
    with subprocess.Popen([program, "start"], cwd=home, env=env, stderr=subprocess.DEVNULL) as process:
        try:
            while not _is_ready(port):
                assert process.poll() is None, "it does not start"
                time.sleep(0.005)
            return time.perf_counter() - began
        finally:
            process.terminate()


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    with suppress(OSError, HTTPException):
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    return False


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = installed(folder)
        (packages,) = content.glob("lib/python3*/site-packages")
        weights = sorted(((size_mb(each), each.name) for each in packages.iterdir() if each.is_dir()), reverse=True)
        whole = size_mb(content)
        starts = [ready_s(content / "bin" / "kimi-proxy", folder / "data", number) for number in range(STARTS)]
    rows = [[name, f"{mb:.1f}"] for mb, name in weights[:LARGEST]]
    rows.append(["the rest", f"{whole - sum(mb for mb, _ in weights[:LARGEST]):.1f}"])
    table("What the image adds to its base", ("", "MB"), rows)
    ready = statistics.median(starts)
    bars = [
        ["the image, MB", f"{whole:.0f} + {BASE_MB}", MAX_MB, "yes" if whole + BASE_MB <= MAX_MB else "NO"],
        ["ready, s (median)", f"{ready:.2f}", f"{MAX_READY_S:g}", "yes" if ready <= MAX_READY_S else "NO"],
    ]
    table(f"Bars, with a load of {os.getloadavg()[0]:.1f}", ("what", "measured", "at most", "held"), bars)
