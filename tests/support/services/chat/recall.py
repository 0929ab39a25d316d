"""What the tests of recall share with others."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.support import outputs
from tests.support.clouds import addressed
from tests.support.conversations import Assistant, Item, Result, User
from tests.support.conversations import Call as Asked
from tests.support.evil import Heard, Line, http
from tests.support.model import Call, Says, body, events

from kimi_proxy.core.chat import Wire

LOG = outputs.pytest_log(300)

ITEMS: list[Item] = [User(LOG.goal), Assistant("", (Asked("call_a1"),)), Result("call_a1", LOG.text)]

ID = re.compile(rb"(?:prn|msk)_[0-9a-z]{16}")

THEIRS = Call("call_b2", "bash", {"command": "ls"})


@dataclass(slots=True)
class Model:
    """Says one thing after the other; where it calls our tool, it takes the id from what it was shown."""

    wire: Wire
    says: Sequence[Says]
    requests: list[bytes] = field(default_factory=list)
    status: str = "200 OK"  # of all answers but the first
    refusals: int = 10**6  # so many have it

    async def __call__(self, heard: Heard, line: Line) -> None:
        heard = addressed(heard)
        says = self.says[min(len(self.requests), len(self.says) - 1)]
        self.requests.append(heard.body)
        found = ID.search(heard.body)
        is_stream = bool(json.loads(heard.body).get("stream"))
        pieces = events(self.wire, says) if is_stream else [body(self.wire, says)]
        raw = [piece.replace(b"PRN", found[0] if found else b"") for piece in pieces]
        if len(self.requests) > 1 and self.status != "200 OK" and self.refusals > 0:
            self.refusals -= 1
            await line.send(http(b'{"error":{"message":"slow down"}}', self.status))
        elif is_stream:
            await line.stream(*raw)
        else:
            await line.send(http(b"".join(raw)))


def recovering(call_id: str = "own_1", **asked: int) -> Call:
    # The id comes in one piece: `Model` puts it where PRN stands.
    return Call(call_id, "recover_text", {**(asked or {"start_line": 3, "end_line": 4}), "id": "PRN"})
