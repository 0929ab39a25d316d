"""The digests of what left in each story: how they are made, and written again."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from tests.replay.player import Played, Player, normalized
from tests.replay.stories import stories

GOLDEN = Path(__file__).with_name("golden.json")


def digests(played: Played) -> list[str]:
    """Return for each request its turn, its length, and the beginning of its SHA-256."""
    bodies = normalized([sent.body for sent in played.sent])
    return [
        f"{sent.turn} {len(body)} {sha256(body).hexdigest()[:16]}"
        for sent, body in zip(played.sent, bodies, strict=True)
    ]


async def play_all() -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for story in stories():
        with tempfile.TemporaryDirectory() as home:
            found[story.name] = digests(await Player(story, Path(home)).play())
    return found


def main() -> None:
    now = asyncio.run(play_all())
    before = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for name in sorted({*now, *before}):
        if now.get(name) != before.get(name):
            print(f"differs: {name}", file=sys.stderr)
    if "--accept" in sys.argv:
        GOLDEN.write_text(json.dumps(now, indent=1) + "\n")


if __name__ == "__main__":
    main()
