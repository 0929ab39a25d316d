"""APIs with the model in the path (Anthropic's messages on Bedrock and Vertex, Google's own API), and Azure's paths:
OpenAI's API below /openai, where a path may contain a deployment, and Anthropic's below /anthropic.
"""

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from kimi_proxy.core import json
from kimi_proxy.core.chat import read
from kimi_proxy.core.chat.clouds import BEDROCK, STREAM_TYPE, VERTEX, BedrockMessages, counted_body, open_body
from kimi_proxy.core.chat.read import JsonBody, splice
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.services.chat.relay import Answer

_VERTEX_MODELS = "/projects/{project}/locations/{location}/publishers/anthropic/models"
_EVENTS = b"text/event-stream"


@dataclass(frozen=True, slots=True)
class CloudForm:
    """Reads a request in a cloud's form of the API, and writes its answer."""

    cloud: str = ""
    open: Callable[[Scope, bytes], bytes] = lambda _, body: body
    close: Callable[[Answer], Answer] = lambda answer: answer
    shows_usage: bool = False  # it has a place for a count of tokens that it has no word to ask for


def _model(scope: Scope) -> str:
    return str(scope["path_params"]["model"])


def _open(scope: Scope, body: bytes) -> bytes:
    return open_body(body, _model(scope), is_stream=False)


def _open_stream(scope: Scope, body: bytes) -> bytes:
    return open_body(body, _model(scope), is_stream=True)


def _open_counted(scope: Scope, body: bytes) -> bytes:
    return counted_body(body, _model(scope))


def _open_gemini(scope: Scope, body: bytes) -> bytes:
    """Raise InvalidParams for a key in the address, which is no place for it."""
    if "key" in dict(parse_qsl(scope["query_string"].decode("latin-1"))):
        raise InvalidParams("key", "send it in the header x-goog-api-key, because addresses are logged")
    return open_body(body, _model(scope), is_stream=False)


def _open_events(scope: Scope, body: bytes) -> bytes:
    if dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("alt") != "sse":
        raise InvalidParams("alt", "streams use server-sent events: add ?alt=sse")
    return open_body(_open_gemini(scope, body), _model(scope), is_stream=True)


def _as_stream(answer: Answer) -> Answer:
    """Return an event stream in Bedrock's framing; a complete response stays unchanged."""
    headers = dict(answer.headers)
    if not headers.get(b"content-type", b"").startswith(_EVENTS):
        return answer
    messages = BedrockMessages()
    others = tuple(each for each in answer.headers if each[0] != b"content-type")
    kind = ((b"content-type", STREAM_TYPE.encode()), (b"x-amzn-bedrock-content-type", b"application/json"))
    rest = None if answer.rest is None else _frame_events(answer.rest, messages)
    return Answer(answer.status, (*others, *kind), messages.feed(answer.body), rest)


async def _frame_events(pieces: AsyncIterator[bytes], messages: BedrockMessages) -> AsyncIterator[bytes]:
    async for piece in pieces:
        if framed := messages.feed(piece):
            yield framed


def _as_count(answer: Answer) -> Answer:
    """Return a count of tokens as Bedrock names it."""
    counted = (read.json_object(answer.body) or {}).get("input_tokens")
    if answer.status != 200 or counted is None:
        return answer
    body = json.encode({"inputTokens": read.value(counted)})
    others = tuple(each for each in answer.headers if each[0] != b"content-length")
    return replace(answer, headers=(*others, (b"content-length", str(len(body)).encode())), body=body)


_ROOTS = ("", "/v1")  # whether or not the client's base address ends in /v1

# By the paths of questions, and of those that only have tokens counted.
CLOUD_ROUTES = {
    "/model/{model:path}/invoke": CloudForm(BEDROCK, _open),
    "/model/{model:path}/invoke-with-response-stream": CloudForm(BEDROCK, _open_stream, _as_stream),
    **{f"{root}{_VERTEX_MODELS}/{{model}}:rawPredict": CloudForm(VERTEX, _open) for root in _ROOTS},
    **{f"{root}{_VERTEX_MODELS}/{{model}}:streamRawPredict": CloudForm(VERTEX, _open_stream) for root in _ROOTS},
}
GEMINI_ROUTES = {
    f"/{version}/models/{{model}}:{method}": CloudForm(open=read)
    for method, read in (
        ("generateContent", _open_gemini),
        ("streamGenerateContent", _open_events),
        ("countTokens", _open_gemini),
    )
    for version in ("v1beta", "v1")
}
COUNTING_ROUTES = {
    "/model/{model:path}/count-tokens": CloudForm(BEDROCK, _open_counted, _as_count),
    **{f"{root}{_VERTEX_MODELS}/count-tokens:rawPredict": CloudForm(VERTEX) for root in _ROOTS},
}


DEPLOYMENT = "kimi_proxy.deployment"  # the scope's key for the name that a path contained

_DEPLOYED = re.compile(r"/openai/deployments/([^/]+)(/.+)")
AZURE_ROOTS = ("/openai/", "/anthropic/")
_PREFIXES = ("/openai/v1/", "/anthropic/v1/")


def rename_path(scope: Scope) -> None:
    """Give a request to a path of Azure's, below AZURE_ROOTS, the path of ours that answers it."""
    path = scope["path"]
    prefix = next((each for each in _PREFIXES if path.startswith(each)), "")
    if prefix:
        scope["path"] = f"/v1/{path.removeprefix(prefix)}"
        return
    if found := _DEPLOYED.fullmatch(path):
        scope[DEPLOYMENT], path = found[1], f"/openai{found[2]}"
    if path.startswith("/openai/"):
        scope["path"] = f"/v1/{path.removeprefix('/openai/')}"
        scope["query_string"] = _without_version(scope["query_string"])


def name_deployment(scope: Scope, body: bytes) -> bytes:
    """Return the body with the deployment that its path named as the model: there the path decides."""
    deployment = scope.get(DEPLOYMENT)
    if deployment is None or not body.lstrip().startswith(b"{"):
        return body
    held = JsonBody(body)
    if read.string(held.members.get("model")) == deployment:
        return body
    return splice(body, [held.set("model", deployment)])


def _without_version(query: bytes) -> bytes:
    """Remove the API version, which only these paths have; no provider needs it."""
    if b"api-version" not in query:
        return query
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return urlencode([pair for pair in pairs if pair[0] != "api-version"]).encode()
