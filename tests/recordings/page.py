"""`python -m tests.recordings.page` writes the figures of docs/replay.md anew."""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "replay.md"
NAMES = ("debugging", "refactoring", "log-hunt")

_FIGURES = re.compile(r"(?<=<!-- figures: python -m tests\.recordings\.page -->\n).*?(?=<!-- end of figures -->)", re.S)


def figures() -> str:
    """What `kimi-proxy replay` prints of each recording."""
    told = []
    for name in NAMES:
        command = [sys.executable, "-m", "kimi_proxy", "replay", str(HERE / f"{name}.jsonl")]
        done = subprocess.run(command, capture_output=True, check=True, text=True, env={"KIMI_PROXY_HOME": str(HERE)})
        told.append(f"```\n$ kimi-proxy replay tests/recordings/{name}.jsonl\n{done.stdout}```\n")
    return "\n".join(told)


def written() -> str:
    found = _FIGURES.search(PAGE.read_text("utf-8"))
    assert found is not None
    return found[0]


if __name__ == "__main__":
    PAGE.write_text(_FIGURES.sub(lambda _: figures(), PAGE.read_text("utf-8")), "utf-8")
