"""The forms in which clients write a request of one of the APIs, and read its answer."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.types import Scope

from kimi_proxy.core.chat.members import open_body
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.services.chat.relay import Answer


@dataclass(frozen=True, slots=True)
class ClientForm:
    """Reads a request in a form of an API, and writes its answer."""

    cloud: str = ""  # a provider of this type is preferred
    open: Callable[[Scope, bytes], bytes] = lambda _, body: body
    close: Callable[[Answer], Answer] = lambda answer: answer
    shows_usage: bool = False  # it has a place for a count of tokens that it has no word to ask for


# Finds the form of a path of ours, which may have to be loaded first.
FormOf = Callable[[str], ClientForm]


def model_in_path(scope: Scope) -> str:
    return str(scope["path_params"]["model"])


def _open_gemini(scope: Scope, body: bytes) -> bytes:
    """Raise InvalidParams for a key in the address, which is no place for it."""
    if "key" in dict(parse_qsl(scope["query_string"].decode("latin-1"))):
        raise InvalidParams("key", "send it in the header x-goog-api-key, because addresses are logged")
    return open_body(body, model_in_path(scope), is_stream=False)


def _open_events(scope: Scope, body: bytes) -> bytes:
    if dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("alt") != "sse":
        raise InvalidParams("alt", "streams use server-sent events: add ?alt=sse")
    return open_body(_open_gemini(scope, body), model_in_path(scope), is_stream=True)


# Gemini names the model in the address.
GEMINI_FORMS = {
    f"/{version}/models/{{model}}:{method}": ClientForm(open=read)
    for method, read in (
        ("generateContent", _open_gemini),
        ("streamGenerateContent", _open_events),
        ("countTokens", _open_gemini),
    )
    for version in ("v1beta", "v1")
}
