"""Our tool in streams: which API is told how."""

from collections.abc import Callable, Mapping

from kimi_proxy.core.chat import Wire
from kimi_proxy.features.recall.call import Rounds
from kimi_proxy.features.recall.chat import ChatRounds
from kimi_proxy.features.recall.messages import MessagesRounds
from kimi_proxy.features.recall.responses import ResponsesRounds

STREAMS: Mapping[Wire, Callable[[str], Rounds]] = {
    Wire.CHAT: ChatRounds,
    Wire.MESSAGES: MessagesRounds,
    Wire.RESPONSES: ResponsesRounds,
}
