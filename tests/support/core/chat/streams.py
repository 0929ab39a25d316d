"""Forty streams as providers write them, well and badly, and what an onlooker should have understood."""

import json
from dataclasses import dataclass
from typing import TypeAlias

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import ReplyFacts, Usage
from kimi_proxy.core.json import JsonValue

Fields: TypeAlias = dict[str, JsonValue]

WORDS = ("Hello", " wörld", " 你好，世界", " 👩‍👩‍👧‍👦", " \u2028\u0085\x7f", "\n\ndata: [DONE]\n\n")


@dataclass(frozen=True, slots=True)
class Stream:
    name: str
    wire: Wire
    raw: bytes
    facts: ReplyFacts


def line(value: JsonValue, prefix: str = "data: ", end: str = "\n\n", ascii_: bool = False) -> str:
    return f"{prefix}{json.dumps(value, ensure_ascii=ascii_, separators=(',', ':'))}{end}"


# OpenAI's chat completions


def delta(delta: Fields, finish: str | None = None, index: int = 0, **more: JsonValue) -> Fields:
    choice: Fields = {"index": index, "delta": delta, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "kimi-k2.5", "choices": [choice], **more}


def said(*words: str) -> str:
    return "".join(line(delta({"content": word})) for word in words)


def call(index: int | None, call_id: str | None, name: str | None, arguments: str) -> Fields:
    where: Fields = {} if index is None else {"index": index}
    function: Fields = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {**where, **({} if call_id is None else {"id": call_id, "type": "function"}), "function": function}


STOP = line(delta({}, "stop"))
TOOL_STOP = line(delta({}, "tool_calls"))
DONE = "data: [DONE]\n\n"
COUNTS: Fields = {
    "prompt_tokens": 120,
    "completion_tokens": 30,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 100},
    "completion_tokens_details": {"reasoning_tokens": 7},
}
COUNTED = Usage(120, 30, 100, 0, 7)
USAGE_ALONE: Fields = {"id": "chatcmpl-1", "model": "kimi-k2.5", "choices": [], "usage": COUNTS}


def chat(
    name: str,
    text: str,
    finish: str = "stop",
    usage: Usage | None = None,
    complete: bool = True,
    unreadable: int = 0,
    model: str = "kimi-k2.5",
) -> Stream:
    return Stream(name, Wire.CHAT, text.encode(), ReplyFacts(model, finish, usage, complete, unreadable))


_TWO_CALLS = (call(0, "a", "read", '{"pa'), call(0, None, None, 'th":"é"}'), call(1, "b", "bash", "{}"))
_SAME_INDEX = (call(0, "a", "read", "{}"), call(0, "b", "grep", "{}"), call(0, "c", "bash", "{}"))
_NO_INDEX = (call(None, "a", "read", '{"x":'), call(None, None, None, "1}"))
_ODD_INDEX = (call(7, "a", "read", "{}"), call(3, "b", "bash", "{}"), call(7, None, None, "{}"))


def _calls(calls: tuple[Fields, ...]) -> str:
    return "".join(line(delta({"tool_calls": [one]})) for one in calls)


CHATS = (
    chat("plain words", said(*WORDS) + STOP + DONE),
    chat("usage at the end", said(*WORDS) + STOP + line(USAGE_ALONE) + DONE, usage=COUNTED),
    chat("usage twice", said("hi") + line(USAGE_ALONE) + STOP + line(USAGE_ALONE) + DONE, usage=COUNTED),
    chat("usage on the last choice", said("hi") + line(delta({}, "stop", usage=COUNTS)) + DONE, usage=COUNTED),
    chat(
        "usage that grows with every chunk",
        "".join(
            line(delta({"content": w}, usage={"prompt_tokens": 5, "completion_tokens": i})) for i, w in enumerate(WORDS)
        )
        + STOP
        + DONE,
        usage=Usage(5, 5),
    ),
    chat(
        "usage null everywhere", line(delta({"content": "hi"}, usage=None)) + line(delta({}, "stop", usage=None)) + DONE
    ),
    chat(
        "usage inside of the choice, as Kimi does",
        said("hi")
        + line({"model": "kimi-k2.5", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": COUNTS}]})
        + DONE,
        usage=COUNTED,
    ),
    chat(
        "usage in a corner, as Groq does",
        said("hi") + line(delta({}, "stop", x_groq={"usage": COUNTS})) + DONE,
        usage=COUNTED,
    ),
    chat(
        "usage as DeepSeek spells it",
        said("hi")
        + STOP
        + line({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 8}})
        + DONE,
        usage=Usage(9, 2, 8),
    ),
    chat(
        "usage that is nonsense",
        said("hi") + line({"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": -3}}) + STOP + DONE,
        usage=Usage(),
    ),
    chat(
        "usage that is no JSON",
        said("hi") + 'data: {"choices":[],"usage":{"prompt_tokens":NaN}}\n\n' + STOP + DONE,
        unreadable=1,
    ),
    chat("usage that is a number", said("hi") + line({"choices": [], "usage": 5}) + STOP + DONE),
    chat("two tool calls", _calls(_TWO_CALLS) + TOOL_STOP + DONE, "tool_calls"),
    chat("three tool calls with one index, as Ollama does", _calls(_SAME_INDEX) + TOOL_STOP + DONE, "tool_calls"),
    chat("tool calls without an index, as Gemini does", _calls(_NO_INDEX) + TOOL_STOP + DONE, "tool_calls"),
    chat("tool calls with odd indexes", _calls(_ODD_INDEX) + TOOL_STOP + DONE, "tool_calls"),
    chat(
        "thoughts first",
        "".join(line(delta({"reasoning_content": word, "content": None})) for word in WORDS) + said("so") + STOP + DONE,
    ),
    chat("two choices", line(delta({"content": "a"})) + line(delta({"content": "b"}, None, 1)) + STOP + DONE),
    chat("CRLF", (said(*WORDS[:4]) + STOP + line(USAGE_ALONE) + DONE).replace("\n", "\r\n"), usage=COUNTED),
    chat("CR alone", (said(*WORDS[:4]) + STOP + line(USAGE_ALONE) + DONE).replace("\n", "\r"), usage=COUNTED),
    chat(
        "all ends of lines at once",
        line(delta({"content": "a"}), end="\n\r\n")
        + line(delta({"content": "b"}), end="\r\r\n")
        + STOP.replace("\n", "\r\n")
        + DONE,
    ),
    chat(
        "no space after the colon",
        line(delta({"content": "é"}), "data:") + line(delta({}, "stop"), "data:") + "data:[DONE]\n\n",
    ),
    chat(
        "comments everywhere",
        ": hello\n\n" + said("hi") + ": ka\n" + ": OPENROUTER PROCESSING\n\n" * 3 + STOP + ":\n\n" + DONE + ": bye\n",
    ),
    chat("ids, names and pauses", f"retry: 3000\nid: 1\nevent: chunk\n{said('hi')}id: 2\n{STOP}id: 3\n{DONE}"),
    chat(
        "data over several lines",
        'data: {"model":"kimi-k2.5",\ndata: "choices":[{"index":0,\ndata: "delta":{},"finish_reason":"stop"}]}\n\n'
        + DONE,
    ),
    chat("a byte order mark first", "\ufeff" + said("hi") + STOP + DONE),
    chat("a malformed event", said("hi") + "data: {oops\n\n" + "data: 12\n\n" + STOP + DONE, unreadable=2),
    chat(
        "an error in the middle", said("hi") + line({"error": {"message": "overloaded", "code": 529}}), "", None, False
    ),
    chat("no end", said(*WORDS), "", None, False),
    chat("a last event without its empty line", said("hi") + STOP + "data: [DONE]\n", "stop", None, False),
    chat(
        "escapes",
        line(delta({"content": "".join(WORDS)}), ascii_=True) + line(delta({}, "length"), ascii_=True) + DONE,
        "length",
    ),
    chat("nothing", "", "", None, False, 0, ""),
)

# Anthropic's messages


def event(kind: str, **fields: JsonValue) -> str:
    return f"event: {kind}\n" + line({"type": kind, **fields})


def messages(
    name: str, text: str, finish: str = "end_turn", usage: Usage | None = None, complete: bool = True
) -> Stream:
    return Stream(name, Wire.MESSAGES, text.encode(), ReplyFacts("claude-x", finish, usage, complete, 0))


_START = event(
    "message_start",
    message={
        "id": "msg_1",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "usage": {
            "input_tokens": 3,
            "cache_read_input_tokens": 2000,
            "cache_creation_input_tokens": 40,
            "output_tokens": 1,
        },
    },
)
_TEXT = (
    event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    + event("ping")
    + "".join(event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS)
    + event("content_block_stop", index=0)
)
_TOOL = event(
    "content_block_start", index=1, content_block={"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
) + "".join(
    event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": piece})
    for piece in ("", '{"file', '_path":"/é', '"}')
)
_END = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 25}) + event("message_stop")
_USED = Usage(2043, 25, 2000, 40)

MESSAGES = (
    messages("words of Claude", _START + _TEXT + _END, usage=_USED),
    messages("a tool of Claude", _START + _TEXT + _TOOL + _END.replace("end_turn", "tool_use"), "tool_use", _USED),
    messages("Claude in CRLF", (_START + _TEXT + _END).replace("\n", "\r\n"), usage=_USED),
    messages("Claude breaks off", _START + _TEXT, "", Usage(2043, 1, 2000, 40), False),
    messages(
        "counts that only come at the end",
        event("message_start", message={"model": "claude-x", "usage": {"input_tokens": 0, "output_tokens": 0}})
        + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"input_tokens": 12, "output_tokens": 5})
        + event("message_stop"),
        usage=Usage(12, 5),
    ),
)

# OpenAI's responses


def responses(
    name: str, text: str, finish: str = "completed", usage: Usage | None = None, complete: bool = True
) -> Stream:
    facts = ReplyFacts("gpt-x", finish, usage, complete, 0, response_id="resp_1")
    return Stream(name, Wire.RESPONSES, text.encode(), facts)


_CREATED = event(
    "response.created", response={"id": "resp_1", "model": "gpt-x", "status": "in_progress", "usage": None}
)
_OUTPUT = "".join(event("response.output_text.delta", item_id="m", delta=word) for word in WORDS)
_FUNCTION = event("response.function_call_arguments.delta", item_id="f", delta='{"é":') + event(
    "response.output_item.done", item={"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"}
)
_RESPONDED: Fields = {
    "input_tokens": 50,
    "input_tokens_details": {"cached_tokens": 30},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
}


def _ended(status: str) -> str:
    return event(f"response.{status}", response={"model": "gpt-x", "status": status, "usage": _RESPONDED})


RESPONSES = (
    responses("words of a response", _CREATED + _OUTPUT + _ended("completed"), usage=Usage(50, 9, 30, 0, 4)),
    responses("a function call", _CREATED + _FUNCTION + _ended("completed"), usage=Usage(50, 9, 30, 0, 4)),
    responses(
        "a response that is too long", _CREATED + _OUTPUT + _ended("incomplete"), "incomplete", Usage(50, 9, 30, 0, 4)
    ),
    responses("a response that breaks off", _CREATED + _OUTPUT, "", None, False),
)

STREAMS = (*CHATS, *MESSAGES, *RESPONSES)
