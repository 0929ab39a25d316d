"""Something that a tool said, where it stands in a conversation."""

from dataclasses import dataclass
from typing import Literal

from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Origin:
    """Who said it: the tool, the file or command that it was asked about, and whether it calls itself a failure."""

    tool: str = ""
    path: str = ""
    command: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """`text` is what stands from `start` to `end` in the text of the part at `spot`."""

    spot: Place
    start: int
    end: int
    text: str
    origin: Origin
    key: bytes  # of the place in the conversation, and of the text
    is_unread: bool  # the model has not answered since
    whole_because: Reason | Literal[""] = ""  # a reason that can be told without looking at the text
