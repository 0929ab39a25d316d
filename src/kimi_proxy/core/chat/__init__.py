"""Chat requests and answers of the three APIs that clients speak, as bytes that can be read and changed in places."""

from kimi_proxy.core.chat.page import Kind, Message, Part, Role, Wire
from kimi_proxy.core.chat.request import Request, encode, parse

__all__ = ["Kind", "Message", "Part", "Request", "Role", "Wire", "encode", "parse"]
