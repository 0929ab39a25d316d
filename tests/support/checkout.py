"""Copies of the repository, as somebody else gets them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
MADE = (".venv", ".tools", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")
PATIENCE_S = 300
LISTENS = re.compile(rb"the pruner listens on (http://\S+)")


def files() -> list[Path]:
    """What is in the repository or about to be: not what git ignores."""
    if not (ROOT / ".git").exists():
        return _unpacked()
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, check=True)
    paths = [Path(os.fsdecode(name)) for name in listed.stdout.split(b"\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


def _unpacked() -> list[Path]:
    """The files of an archive that was unpacked here, but for what set-up and tests have made."""
    found = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
    return [path for path in found if path.parts[0] not in MADE and "__pycache__" not in path.parts]


def copy_to(folder: Path) -> Path:
    for path in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, folder / path)
    return folder


def clean_env(home: Path) -> dict[str, str]:
    """The environment of somebody who is here for the first time, but for what was downloaded before."""
    home.mkdir(exist_ok=True)
    passed = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "UV_"))}
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv")
    return {
        **passed,
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "UV_CACHE_DIR": cache,
        "UV_SYSTEM_CERTS": "1",
        "MCP_PRUNER_PORT": "0",
        "KIMI_PROXY_PORT": "0",
    }
