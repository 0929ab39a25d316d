"""Our errors in the words of the API that was called: as the body of an answer, or as the last event of a stream."""

from kimi_proxy.core import jsontext
from kimi_proxy.core.chat.wire import Wire
from kimi_proxy.core.types import JsonObject

_OPENAI = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_ANTHROPIC = _OPENAI | {413: "request_too_large", 504: "timeout_error"}


def body(wire: Wire, status: int, code: str, message: str) -> JsonObject:
    if wire is Wire.MESSAGES:
        kind = _ANTHROPIC.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message, "code": code}}
    kind = _OPENAI.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def event(wire: Wire, status: int, code: str, message: str) -> bytes:
    """Never `[DONE]`: a stream that broke off is not done."""
    said = body(wire, status, code, message)
    if wire is Wire.RESPONSES:
        # The documentation has the words at the top, OpenAI's own server puts them under `error`: clients read either.
        said = {"type": "error", "code": code, "message": message, "param": None, "sequence_number": 0} | said
    name = b"" if wire is Wire.CHAT else b"event: error\n"
    return name + b"data: " + jsontext.encode(said) + b"\n\n"
