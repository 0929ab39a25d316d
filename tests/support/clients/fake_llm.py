"""A model on loopback that says what a script tells it to, in Anthropic's and in OpenAI's streams."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Call:
    """The model wants a tool to be run."""

    tool: str
    arguments: dict[str, object]


# What the tools have answered so far → the next step: another call, or the last words.
Script = Callable[[list[str]], Call | str]


@dataclass
class FakeLlm:
    """What the agent told the model: the tools on offer, and what they answered, in order."""

    url: str
    script: Script
    native: bool = False  # the script calls tools of the agent's own
    offered: set[str] = field(default_factory=set)
    answers: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # all that the messages of each request say, from Anthropic's API

    def step(self, offered: set[str], answers: list[str]) -> Call | str:
        self.offered |= offered
        if len(answers) > len(self.answers):
            self.answers = answers
        return self.script(answers) if offered else "nothing to do"


@contextmanager
def fake_llm(script: Script, native: bool = False) -> Iterator[FakeLlm]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        llm = FakeLlm(f"http://127.0.0.1:{server.server_address[1]}", script, native)
        server.llm = llm  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield llm
        finally:
            server.shutdown()
            thread.join()


class ScriptedHandler(BaseHTTPRequestHandler):
    """Answers whole, and nothing but what `do_POST` knows."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(200, "text/plain", b"")

    def do_GET(self) -> None:
        self.answer(404, "application/json", b"{}")

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def stream(self, events: list[dict[str, object]]) -> None:
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
        self.answer(200, "text/event-stream", "".join(lines).encode())

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """What passes is kept by the test."""


class _Handler(ScriptedHandler):
    def do_POST(self) -> None:
        raw, path = self.body(), self.path.partition("?")[0]
        llm: FakeLlm = self.server.llm  # type: ignore[attr-defined]
        if path == "/v1/messages":
            self.stream(_anthropic(json.loads(raw), llm))
        elif path == "/v1/responses":
            self.stream(_openai(json.loads(raw), llm))
        else:
            self.answer(404, "application/json", b"{}")


def _anthropic(request: dict[str, object], llm: FakeLlm) -> list[dict[str, object]]:
    tools = {tool.get("name", "") for tool in request.get("tools") or []}  # type: ignore
    offered = {name for name in tools if llm.native or "__" in name}
    blocks = [b for m in request["messages"] if isinstance(m["content"], list) for b in m["content"]]  # type: ignore
    answers = [_words(block.get("content")) for block in blocks if block["type"] == "tool_result"]
    llm.asked.append("".join(_words(message["content"]) for message in request["messages"]))  # type: ignore
    match llm.step({name.rpartition("__")[2] for name in offered}, answers):
        case Call(tool, arguments):
            # Of several servers the first; else it is a tool of the agent's own.
            name = min((name for name in offered if name.endswith(f"__{tool}")), default=tool)
            start: dict[str, object] = {"type": "tool_use", "id": f"toolu_{len(answers)}", "name": name, "input": {}}
            delta: dict[str, object] = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            reason = "tool_use"
        case words:
            start, delta, reason = {"type": "text", "text": ""}, {"type": "text_delta", "text": words}, "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg", "type": "message", "role": "assistant", "model": "scripted", "content": [], "usage": usage}
    ending = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def _openai(request: dict[str, object], llm: FakeLlm) -> list[dict[str, object]]:
    spaces = [tool for tool in request.get("tools") or [] if tool.get("type") == "namespace"]  # type: ignore
    ours = [space for space in spaces if str(space["name"]).startswith("mcp__")]
    offered = {tool["name"]: space["name"] for space in ours for tool in space["tools"]}
    answers = [_words(item["output"]) for item in request["input"] if item["type"] == "function_call_output"]  # type: ignore
    item: dict[str, object] = {"id": f"item_{len(answers)}", "status": "completed"}
    match llm.step(set(offered), answers):
        case Call(tool, arguments):
            call = {"type": "function_call", "call_id": f"call_{len(answers)}", "arguments": json.dumps(arguments)}
            item |= {**call, "name": tool, "namespace": offered[tool]}
        case words:
            content = [{"type": "output_text", "text": words, "annotations": []}]
            item |= {"type": "message", "role": "assistant", "content": content}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    return [
        {"type": "response.created", "response": {"id": "resp"}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp", "output": [item], "usage": usage}},
    ]


def _words(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(block.get("text", "")) for block in content)
    return str(content or "")
