"""A provider for a product in a process of its own: it says what a test tells it to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

from tests.support.browser.product import Product, titled

from kimi_proxy.core.json import JsonObject, JsonValue

MODEL = "local/m"
WINDOW = 10_000
PATIENCE_S = 60


@dataclass
class Provider:
    port: int = 0
    tokens: int = 100  # what it says that the model has read
    status: int = 200
    says: str = "so it is"
    may_answer: Event = field(default_factory=Event)
    asked: list[JsonObject] = field(default_factory=list)

    def toml(self, window: int = WINDOW) -> str:
        return f"""
[providers.local]
type = "openai"
base_url = "http://127.0.0.1:{self.port}/v1"
api_key = ""

[models."{MODEL}"]
provider = "local"
max_context_size = {window}
input_usd_per_million = 1.0
output_usd_per_million = 2.0
"""

    def answer(self) -> JsonValue:
        if self.status != 200:
            return {"error": {"message": "not today", "type": "refused"}}
        choice = {"message": {"role": "assistant", "content": self.says}, "finish_reason": "stop"}
        return {"model": "m", "choices": [choice], "usage": {"prompt_tokens": self.tokens, "completion_tokens": 7}}


@contextmanager
def provider() -> Iterator[Provider]:
    told = Provider()
    told.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            may_answer = told.may_answer  # of this request, also when the next one has another
            told.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            may_answer.wait(PATIENCE_S)
            body = json.dumps(told.answer()).encode()
            self.send_response(told.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told.port = server.server_address[1]
        serving = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        serving.start()
        try:
            yield told
        finally:
            told.may_answer.set()
            server.shutdown()
            serving.join(PATIENCE_S)


def say(product: Product, *words: str, session: str = "", **fields: JsonValue) -> int:
    """Ask the provider through the product; `words` are what was said in turns. Gives the status."""
    said: list[JsonValue] = [
        {"role": "assistant" if at % 2 else "user", "content": word} for at, word in enumerate(words)
    ]
    headers = {"x_session_id": session} if session else {}
    body: JsonObject = {"model": MODEL, "messages": titled(session, said) if session else said, **fields}
    return product.ask("POST", "/v1/chat/completions", body, **headers).status_code
