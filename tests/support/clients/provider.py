"""A provider that answers each of the three APIs with words and a tool call, as a model would."""

import json

from tests.support.core.chat.streams import DONE, TOOL_STOP, USAGE_ALONE, call, delta, event, line, said
from tests.support.evil import Heard, Line, http

from kimi_proxy.core.json import JsonObject

COMMENTS = "".join(f": still thinking {number}\n" for number in range(50))
CHAT = (
    "id: 1\n"
    + line(delta({"role": "assistant", "content": ""}))
    + COMMENTS
    + said("Voilà, ", "你好 ", "👩‍👩‍👧‍👦")
    + "".join(
        line(delta({"tool_calls": [piece]}))
        for piece in (call(0, "call_1", "read", ""), call(0, None, None, '{"path":'), call(0, None, None, '"é.py"}'))
    )
    + TOOL_STOP
    + line(USAGE_ALONE)
    + DONE
)

_USAGE: JsonObject = {"input_tokens": 12, "output_tokens": 1}
_MESSAGE: JsonObject = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": _USAGE,
}
_TOOL_USE: JsonObject = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
MESSAGES = (
    event("message_start", message=_MESSAGE)
    + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + event("ping")
    + "".join(
        event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
        for word in ("Voilà, ", "你好")
    )
    + event("content_block_stop", index=0)
    + event("content_block_start", index=1, content_block=_TOOL_USE)
    + "".join(
        event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": piece})
        for piece in ('{"path":', '"é.py"}')
    )
    + event("content_block_stop", index=1)
    + event("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 25})
    + event("message_stop")
)

_RESPONSE: JsonObject = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-x",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "status": "in_progress",
}
_CALL: JsonObject = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "read",
    "arguments": '{"path":"é.py"}',
    "status": "completed",
}
_SPENT: JsonObject = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 17,
}
RESPONSES = (
    event("response.created", sequence_number=0, response=_RESPONSE)
    + event("response.output_item.added", sequence_number=1, output_index=0, item={**_CALL, "arguments": ""})
    + "".join(
        event(
            "response.function_call_arguments.delta",
            sequence_number=number,
            item_id="fc_1",
            output_index=0,
            delta=piece,
        )
        for number, piece in ((2, '{"path":'), (3, '"é.py"}'))
    )
    + event("response.output_item.done", sequence_number=4, output_index=0, item=_CALL)
    + event(
        "response.completed",
        sequence_number=5,
        response={**_RESPONSE, "status": "completed", "output": [_CALL], "usage": _SPENT},
    )
)

STREAMS = {"/chat/completions": CHAT, "/messages": MESSAGES, "/responses": RESPONSES}
BREAK_OFF = b"break off"
SLOW_DOWN = b"slow down"


def stream_of(target: str) -> bytes:
    return next(stream for path, stream in STREAMS.items() if path in target).encode()


class Provider:
    """Asked to slow down, it does so once; asked to break off, it does so in the middle."""

    def __init__(self) -> None:
        self.told_to_wait = 0

    async def __call__(self, heard: Heard, line: Line) -> None:
        if SLOW_DOWN in heard.body and not self.told_to_wait:
            self.told_to_wait += 1
            refusal = json.dumps({"type": "error", "error": {"type": "rate_limit_error", "message": "wait"}}).encode()
            await line.send(http(refusal, "429 Too Many Requests", "application/json", "retry-after-ms: 10"))
            return
        raw = stream_of(heard.target)
        if BREAK_OFF in heard.body:
            await line.stream(raw[: len(raw) * 2 // 3], ends=False)
            line.finish()
            return
        await line.stream(*(raw[at : at + 61] for at in range(0, len(raw), 61)))


class Coder:
    """A model that calls one tool of a coding agent, reads what comes back, and is done."""

    DONE = "All done, 你好."

    async def __call__(self, heard: Heard, line: Line) -> None:
        if "/messages" in heard.target:
            raw = self._message(b'"tool_result"' in heard.body)
        else:
            raw = self._response(heard.body)
        await line.stream(*(raw[at : at + 97] for at in range(0, len(raw), 97)))

    def _message(self, is_last: bool) -> bytes:
        block: JsonObject = {"type": "text", "text": ""} if is_last else {**_TOOL_USE, "name": "Read"}
        piece: JsonObject = (
            {"type": "text_delta", "text": self.DONE}
            if is_last
            else {"type": "input_json_delta", "partial_json": '{"file_path":"hello.txt"}'}
        )
        finish: JsonObject = {"stop_reason": "end_turn" if is_last else "tool_use", "stop_sequence": None}
        return (
            event("message_start", message=_MESSAGE)
            + event("content_block_start", index=0, content_block=block)
            + event("content_block_delta", index=0, delta=piece)
            + event("content_block_stop", index=0)
            + event("message_delta", delta=finish, usage={"output_tokens": 5})
            + event("message_stop")
        ).encode()

    def _response(self, body: bytes) -> bytes:
        words = {"type": "output_text", "text": self.DONE, "annotations": []}
        item: JsonObject = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "content": [words],
            "status": "completed",
        }
        if b'"function_call_output"' not in body:
            command = json.dumps({"cmd": "echo a needle in an output"})
            item = {**_CALL, "name": "exec_command", "arguments": command}
        whole: JsonObject = {**_RESPONSE, "status": "completed", "output": [item], "usage": _SPENT}
        return (
            event("response.created", sequence_number=0, response=_RESPONSE)
            + event("response.output_item.done", sequence_number=1, output_index=0, item=item)
            + event("response.completed", sequence_number=2, response=whole)
        ).encode()
