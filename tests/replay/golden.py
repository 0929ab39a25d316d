"""The digests of what left in each story: how they are made, and written again."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from tests.replay.player import Played, Player, normalized
from tests.replay.stories import stories

GOLDEN = Path(__file__).with_name("golden.json")
ACCOUNTS = Path(__file__).with_name("accounts.json")


def digests(played: Played) -> list[str]:
    """Return for each request its turn, its length, and the beginning of its SHA-256."""
    bodies = normalized([sent.body for sent in played.sent])
    return [
        f"{sent.turn} {len(body)} {sha256(body).hexdigest()[:16]}"
        for sent, body in zip(played.sent, bodies, strict=True)
    ]


def accounts(played: Played) -> list[str]:
    """Return for each request its tokens, those saved or observed, and the beginning of the SHA-256 of its row."""
    found: list[str] = []
    for row in played.accounted:
        read = json.loads(row)
        sessions = dict.fromkeys(json.loads(each)["session_id"] for each in played.accounted)
        read["session_id"] = list(sessions).index(read["session_id"])  # some are drawn anew in every run
        digest = sha256(json.dumps(read).encode()).hexdigest()[:16]
        saved = read["observed_tokens"] if read["observed_tokens"] is not None else read["tokens_saved"]
        found.append(f"{read['tokens_estimated']} {saved} {digest}")
    return found


async def play_all() -> Sequence[tuple[Path, Mapping[str, list[str]]]]:
    sent: dict[str, list[str]] = {}
    accounted: dict[str, list[str]] = {}
    for story in stories():
        with tempfile.TemporaryDirectory() as home:
            played = await Player(story, Path(home)).play()
            sent[story.name], accounted[story.name] = digests(played), accounts(played)
    return [(GOLDEN, sent), (ACCOUNTS, accounted)]


def main() -> None:
    for path, now in asyncio.run(play_all()):
        before = json.loads(path.read_text()) if path.exists() else {}
        for name in sorted({*now, *before}):
            if now.get(name) != before.get(name):
                print(f"differs in {path.name}: {name}", file=sys.stderr)
        if "--accept" in sys.argv:
            path.write_text(json.dumps(now, indent=1) + "\n")


if __name__ == "__main__":
    main()
