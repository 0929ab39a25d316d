"""Clouds in front of a scripted model: what stands in their addresses is put into the body, and answers are framed."""

import json
import re
from dataclasses import replace
from urllib.parse import unquote

from tests.support.aws import framed
from tests.support.evil import LAST_CHUNK, STREAM_HEAD, Heard, Line, Script, chunk, http

FRAMED_HEAD = STREAM_HEAD.replace(b"text/event-stream", b"application/vnd.amazon.eventstream")

_BEDROCK = re.compile(r"(?:/v1)?/model/([^/]+)/(invoke(?:-with-response-stream)?)")
_GEMINI = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)(?:\?|$)")
_VERTEX = re.compile(r"(?:/v1)?(?:/projects/[^/]+/locations/[^/]+)?/publishers/anthropic/models/([^/:]+):(\w+)")


class FramedLine(Line):
    """Writes events as Bedrock's messages."""

    def __init__(self, line: Line) -> None:
        super().__init__(line._reader, line._writer)
        self._line = line

    async def stream(self, *events: bytes, ends: bool = True) -> None:
        await self.send(FRAMED_HEAD, *map(chunk, framed(events)), *([LAST_CHUNK] if ends else []))

    def reset(self) -> None:
        super().reset()
        self._line.is_open = False


def as_bedrock(model: Script) -> Script:
    async def script(heard: Heard, line: Line) -> None:
        found = _BEDROCK.fullmatch(heard.target)
        if found is None:
            await line.send(http(b'{"message":"unknown"}', "404 Not Found"))
            return
        is_stream = found[2] != "invoke"
        await model(_messages(heard, unquote(found[1]), is_stream), FramedLine(line))

    return script


def as_vertex(model: Script) -> Script:
    async def script(heard: Heard, line: Line) -> None:
        found = _VERTEX.fullmatch(heard.target.partition("?")[0])
        if found is None:
            await line.send(http(b'{"error":{"message":"unknown"}}', "404 Not Found"))
        elif found[1] == "count-tokens":
            await line.send(http(b'{"input_tokens":10}'))
        else:
            await model(_messages(heard, unquote(found[1]), False), line)

    return script


def addressed(heard: Heard) -> Heard:
    """Return a request to Google's API with what its address says in the body; any other as it is."""
    found = _GEMINI.search(heard.target)
    if found is None:
        return heard
    stream = ',"stream":true' if found[2] == "streamGenerateContent" else ""
    end = heard.body.rindex(b"}")
    said = f'{"," if len(heard.body) > 2 else ""}"model":{json.dumps(unquote(found[1]))}{stream}'
    return replace(heard, body=heard.body[:end] + said.encode() + heard.body[end:])


def as_gemini(model: Script) -> Script:
    async def script(heard: Heard, line: Line) -> None:
        path = heard.target.removeprefix("/v1beta").removeprefix("/v1")
        await model(replace(addressed(heard), target=f"/v1beta{path}"), line)

    return script


class WrappedLine(Line):
    """Writes events as Code Assist does: what Gemini's own API says is in an envelope."""

    def __init__(self, line: Line) -> None:
        super().__init__(line._reader, line._writer)
        self._line = line

    async def stream(self, *events: bytes, ends: bool = True) -> None:
        wrapped = (
            b'data: {"response": %b,"traceId": "t1","remainingCredits": []}\n\n' % event.removeprefix(b"data: ").strip()
            for event in events
        )
        await super().stream(*wrapped, ends=ends)

    def reset(self) -> None:
        super().reset()
        self._line.is_open = False


def as_code_assist(model: Script) -> Script:
    """Return Code Assist in front of a model of Gemini's API; it lets everyone in."""

    async def script(heard: Heard, line: Line) -> None:
        verb = heard.target.partition("?")[0].rpartition("v1internal:")[2]
        if verb == "loadCodeAssist":
            await line.send(http(b'{"currentTier": {"id": "free-tier"}, "cloudaicompanionProject": "p-1"}'))
        elif verb == "countTokens":
            await line.send(http(b'{"totalTokens": 10}'))
        elif verb not in ("generateContent", "streamGenerateContent"):
            await line.send(http(b"{}"))
        else:
            asked = json.loads(heard.body)
            inner = json.dumps(asked["request"], separators=(",", ":"), ensure_ascii=False)
            assert inner.encode() in heard.body, "a client writes it so"
            target = f"/v1beta/models/{asked['model']}:{verb}"
            await model(addressed(replace(heard, target=target, body=inner.encode())), WrappedLine(line))

    return script


def as_foundry(model: Script) -> Script:
    async def script(heard: Heard, line: Line) -> None:
        await model(replace(heard, target=heard.target.removeprefix("/anthropic")), line)

    return script


def _messages(heard: Heard, model: str, is_stream: bool) -> Heard:
    """Return the question as one of Anthropic's own API, in the same bytes but for what the address says."""
    assert "model" not in json.loads(heard.body)
    said = f',"model":{json.dumps(model)}' + (',"stream":true' if is_stream else "")
    end = heard.body.rindex(b"}")
    return replace(heard, target="/v1/messages", body=heard.body[:end] + said.encode() + heard.body[end:])
