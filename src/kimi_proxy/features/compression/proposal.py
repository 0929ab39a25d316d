"""A compression before it is decided: what would go, and what would stand there instead."""

from dataclasses import dataclass

from kimi_proxy.core.chat import Message, Request
from kimi_proxy.features.composition import Composition
from kimi_proxy.features.compression import wording
from kimi_proxy.features.compression.history import History
from kimi_proxy.features.compression.plan import Limits, Plan, plan


@dataclass(frozen=True)
class Proposal:
    """`after` is the place up to which an earlier summary tells the story already."""

    came: History
    history: History  # the same messages, as far as other steps changed them
    plan: Plan
    after: int = 0

    @property
    def untold(self) -> list[Message]:
        """The messages that no summary tells of yet."""
        return [self.history.messages[place] for place in self.plan.removed if place >= self.after]

    @property
    def fingerprint(self) -> bytes:
        return self.came.fingerprint(self.plan.cut)

    @property
    def original(self) -> str:
        """The removed messages as the client sent them, one after the other."""
        messages, body = self.came.messages, self.came.request.body
        raw = (body[messages[place].start : messages[place].end] for place in self.plan.removed)
        return b"\n".join(raw).decode("utf-8", "surrogatepass")

    def message(self, summary: str, original_id: str) -> str:
        memories = wording.memories(self.history.messages[place] for place in self.plan.removed)
        return wording.message(summary, memories, len(self.plan.removed), original_id)


def proposed(
    came: Request, request: Request, weighed: Composition, now_tokens: int, limits: Limits, after: int = 0
) -> Proposal | None:
    """What could give way in `request`; None if too little could. `now_tokens` are sent today, with what was done."""
    history = History(request)
    weights = [weighed.messages[at].tokens for at in history.at]
    found = plan(history, weights, weighed.total, now_tokens, limits)
    return None if found is None or found.cut <= after else Proposal(History(came), history, found, after)
