"""`python -m tests.recordings.page` writes the figures of docs/replay.md anew."""

import re
from pathlib import Path

from tests.support.forks import commands

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "replay.md"
NAMES = ("debugging", "refactoring", "log-hunt")

_FIGURES = re.compile(r"(?<=<!-- figures: python -m tests\.recordings\.page -->\n).*?(?=<!-- end of figures -->)", re.S)


def figures(name: str) -> str:
    """What `kimi-proxy replay` prints of a recording."""
    done = commands().run(["replay", str(HERE / f"{name}.jsonl")], b"", HERE, {"KIMI_PROXY_HOME": str(HERE)})
    assert done.returncode == 0, done.stderr.decode()
    return f"```\n$ kimi-proxy replay tests/recordings/{name}.jsonl\n{done.stdout.decode()}```\n"


def written() -> str:
    found = _FIGURES.search(PAGE.read_text("utf-8"))
    assert found is not None
    return found[0]


if __name__ == "__main__":
    told = "\n".join(map(figures, NAMES))
    PAGE.write_text(_FIGURES.sub(lambda _: told, PAGE.read_text("utf-8")), "utf-8")
