"""An MCP server over HTTP that is started like any program, with the standard library alone.

python -I -S http_server.py PORT [late | dies | stranger]
"""

import json
import os
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

PORT = int(sys.argv[1])
MODE = sys.argv[2] if len(sys.argv) > 2 else ""

TOOLS = [{"name": "pid", "inputSchema": {"type": "object"}}, {"name": "die", "inputSchema": {"type": "object"}}]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    children: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if MODE == "stranger":
            self._send(200, b"hello, I am a web page", "text/html")
        elif "id" not in message:
            self._send(202, b"")
        elif message["method"] != "initialize" and self.headers.get("mcp-session-id") != f"s-{os.getpid()}":
            self._send(404, b"no such session")
        else:
            self._answer(message)

    def _answer(self, message: dict) -> None:
        match message:
            case {"method": "initialize"}:
                about = {"name": "http-script", "version": "1"}
                result: object = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": about,
                }
            case {"method": "tools/list"}:
                result = {"tools": TOOLS}
            case {"params": {"name": "die"}}:
                print("somebody told me to die", file=sys.stderr, flush=True)
                os._exit(3)
            case _:
                result = {"pid": os.getpid(), "children": self.children}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self._send(200, body)

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("mcp-session-id", f"s-{os.getpid()}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


print("I am about to listen", flush=True)
if MODE == "dies":
    print("my configuration is nowhere to be found", file=sys.stderr, flush=True)
    sys.exit(4)
if MODE == "late":
    time.sleep(0.6)
Handler.children.append(subprocess.Popen(["sleep", "600"]).pid)
ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
