"""Chat requests and answers of the APIs that clients speak, as bytes that can be read and changed in places."""

from kimi_proxy.core.chat.read import Content, Kind, Message, Part, Role
from kimi_proxy.core.chat.request import Request, parse
from kimi_proxy.core.chat.wires import Wire

__all__ = ["Content", "Kind", "Message", "Part", "Request", "Role", "Wire", "parse"]
