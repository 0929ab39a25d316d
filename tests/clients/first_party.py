"""api.anthropic.com on loopback: what Claude Code sends there when it has no other address."""

import contextlib
import json
import select
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.clients.fake_llm import ScriptedHandler

HOST = "api.anthropic.com"


@dataclass
class Recorded:
    """The requests that a provider got, and the variables by which Claude Code finds it."""

    env: dict[str, str]
    bodies: list[dict[str, object]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


@contextlib.contextmanager
def first_party(folder: Path) -> Iterator[Recorded]:
    """Answer as Anthropic's server would: over TLS, through a proxy that leads there whoever is asked for."""
    certificate, key = _certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server, _Tunnel(("127.0.0.1", 0), _Connect) as tunnel:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        tunnel.to = server.server_address[1]
        env = {
            "HTTPS_PROXY": f"http://127.0.0.1:{tunnel.server_address[1]}",
            "NODE_EXTRA_CA_CERTS": str(certificate),
        }
        recorded = server.recorded = Recorded(env)  # type: ignore[attr-defined]
        threads = [threading.Thread(target=each.serve_forever, args=(0.05,)) for each in (server, tunnel)]
        for thread in threads:
            thread.start()
        try:
            yield recorded
        finally:
            for each in (server, tunnel):
                each.shutdown()
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def provider() -> Iterator[tuple[str, Recorded]]:
    """The same without TLS, at an address of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        recorded = server.recorded = Recorded({})  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", recorded
        finally:
            server.shutdown()
            thread.join()


def _certificate(folder: Path) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    names = ["-addext", f"subjectAltName=DNS:{HOST}"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([openssl, "req", *options, *names, *files], check=True, capture_output=True)
    return certificate, key


class _Handler(ScriptedHandler):
    def do_POST(self) -> None:
        raw = self.body()
        if not self.path.startswith("/v1/messages"):
            self.answer(404, "application/json", b"{}")
            return
        recorded: Recorded = self.server.recorded  # type: ignore[attr-defined]
        recorded.bodies.append(json.loads(raw))
        recorded.headers.append({name.lower(): value for name, value in self.headers.items()})
        self.stream(_EVENTS)


_MESSAGE = {"id": "msg", "type": "message", "role": "assistant", "model": "scripted", "content": []}
_USAGE = {"input_tokens": 1, "output_tokens": 1}
_OPEN = {"stop_reason": None, "stop_sequence": None}
_EVENTS: list[dict[str, object]] = [
    {"type": "message_start", "message": {**_MESSAGE, **_OPEN, "usage": _USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {**_OPEN, "stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
]


class _Tunnel(ThreadingHTTPServer):
    to = 0


class _Connect(BaseHTTPRequestHandler):
    def do_CONNECT(self) -> None:
        if not self.path.startswith(f"{HOST}:"):
            self.send_error(403)
            return
        tunnel = self.server
        assert isinstance(tunnel, _Tunnel)
        with socket.create_connection(("127.0.0.1", tunnel.to)) as there:
            self.send_response(200)
            self.end_headers()
            _carry(self.connection, there)

    def log_message(self, format: str, *args: object) -> None:
        """What passes is recorded."""


def _carry(one: socket.socket, other: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([one, other], [], [], 60)
        for source in ready:
            data = source.recv(65_536)
            if not data:
                return
            (other if source is one else one).sendall(data)
        if not ready:
            return
