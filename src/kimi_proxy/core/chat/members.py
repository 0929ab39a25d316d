"""Adding members to the bytes of a body, and removing them: `model` and `stream`, where an address has them instead."""

from kimi_proxy.core import json
from kimi_proxy.core.chat.read import JsonBody, splice
from kimi_proxy.core.json import JsonObject

ENVELOPED = "/v1internal"  # where Gemini's API with a login of Google begins: its bodies are in an envelope


def open_body(body: bytes, model: str, is_stream: bool) -> bytes:
    """Return the body with the model of its address. Raise ParseError if it is no JSON object."""
    held = JsonBody(body)
    missing: JsonObject = {"model": model} if "model" not in held.members else {}
    if is_stream and "stream" not in held.members:
        missing["stream"] = True
    return _with_members(body, held, missing)


def _with_members(body: bytes, held: JsonBody, missing: JsonObject) -> bytes:
    if not missing:
        return body
    end = held.body.rindex(b"}")
    comma = b"," if held.members or held.is_crowded else b""
    return body[:end] + comma + json.encode(missing)[1:-1] + body[end:]


def without_members(body: bytes, *names: str) -> bytes:
    for name in names:
        if edit := JsonBody(body).remove(name):
            body = splice(body, [edit])
    return body
