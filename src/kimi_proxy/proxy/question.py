"""What a provider is asked."""

from dataclasses import dataclass

from kimi_proxy.core.chat import Wire
from kimi_proxy.proxy.headers import Header


@dataclass(frozen=True, slots=True)
class Question:
    wire: Wire
    body: bytes
    headers: tuple[Header, ...] = ()  # the client's
    query: str = ""  # the client's too
    below: str = ""  # what follows the usual path, such as /count_tokens
