"""A client's request: its bytes, and a view of their contents."""

from dataclasses import dataclass, field
from functools import cached_property

from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.messages import RememberedMessages
from kimi_proxy.core.chat.read import JsonBody, Message, Part, RawObject
from kimi_proxy.core.chat.wires import Wire
from kimi_proxy.core.chat.wires.protocol import WireFormat
from kimi_proxy.core.errors import InvalidParams


@dataclass(frozen=True)
class Request:
    """A request, parsed only as far as needed; without an edit (`core/chat/edit.py`) it is sent as received."""

    wire: Wire
    body: bytes
    remembered: RememberedMessages | None = field(default=None, repr=False, compare=False)

    @cached_property
    def json(self) -> JsonBody:
        return JsonBody(self.body)

    def read_whole(self) -> "Request":
        """Read what every stage looks at, and return the request; of a long one this belongs into a thread."""
        if not self.is_crowded:
            _ = self.messages, self.system, self.tool_names  # from now on they are known
        return self

    @property
    def is_crowded(self) -> bool:
        """Return whether it has too many values to be parsed: it can only be passed on, with its model renamed."""
        return self.json.is_crowded

    @property
    def members(self) -> RawObject:
        return self.json.members

    @property
    def format(self) -> WireFormat:
        return self.wire.format

    @cached_property
    def model(self) -> str:
        return read.string(self.members.get("model"))

    @cached_property
    def is_stream(self) -> bool:
        return read.is_true(self.members.get("stream"))

    @cached_property
    def messages(self) -> tuple[Message, ...]:
        return self.format.messages(self.json, self.remembered)

    @cached_property
    def apart(self) -> tuple[Part, ...]:
        """Return the client's instructions that are no message."""
        return self.format.apart(self.json)

    @cached_property
    def instructions(self) -> tuple[Message, ...]:
        """Return the messages that hold instructions."""
        if not self.format.has_system_messages:
            return ()
        return tuple(message for message in self.messages if message.role == "system")

    @cached_property
    def system(self) -> tuple[Part, ...]:
        """Return the client's instructions, wherever the API puts them: first those that are no message."""
        return (*self.apart, *(part for message in self.instructions for part in message.parts))

    @cached_property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.format.tools(self.json))

    @property
    def forces_tool(self) -> bool:
        """Return whether the model has to call a tool: any of them, or one that the client names."""
        return self.format.forces_tool(self.json)

    @cached_property
    def read_from(self) -> int:
        """The place of the first message that the model reads; the provider has compacted those before."""
        return self.format.read_from(self.json)

    @property
    def is_cleared(self) -> bool:
        """Return whether the provider may remove old messages or results before the model reads them."""
        return self.format.is_cleared(self.json)

    @property
    def is_stored(self) -> bool:
        """Return whether the provider adds the request and its answer to a conversation that it stores."""
        return self.json.has(self.format.stored_conversation)

    @property
    def previous_response_id(self) -> str:
        """The answer that the client continues from by its id; empty if the whole conversation is here."""
        name = self.format.previous_response
        return read.string(self.members.get(name)) if name else ""

    @property
    def is_continued(self) -> bool:
        """Return whether the provider stores the earlier turns, so that only the newest are sent here."""
        return self.is_stored or self.json.has(self.format.previous_response)

    @property
    def is_kept(self) -> bool:
        """Return whether the provider stores this turn, so that another can continue from it."""
        return self.is_continued or self.format.is_answer_stored(self.json)

    def part(self, message: int, part: int) -> Part:
        return self.messages[message].parts[part]


def parse(body: bytes, wire: Wire, remembered: RememberedMessages | None = None) -> Request:
    """Raise ParseError if the body is no JSON object, InvalidParams if it names no model."""
    request = Request(wire, body, remembered)
    if not request.model:
        raise InvalidParams("model", "must be a string")
    return request
