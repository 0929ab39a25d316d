"""HTTP as bytes on a socket, for requests that no client library would send."""

import socket
from contextlib import suppress
from dataclasses import dataclass

from kimi_proxy.core import json as jsontext
from kimi_proxy.core.json import JsonValue

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Heard:
    """What came back; a connection that closed without a word has status 0."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> JsonValue:
        return jsontext.decode(self.body)

    @property
    def error_code(self) -> JsonValue:
        match self.json:
            case {"error": {"code": code}}:
                return code
            case other:
                raise AssertionError(f"no error in {other!r}")


def connect(port: int) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line


def exchange(port: int, raw: bytes) -> Heard:
    with connect(port) as line:
        with suppress(OSError):  # refused before it was all sent; the answer may still be there
            line.sendall(raw)
        return hear(line)


def hear(line: socket.socket) -> Heard:
    """Read one response."""
    raw = b""
    while b"\r\n\r\n" not in raw:
        piece = _receive(line)
        if not piece:
            return Heard(0, {}, raw)
        raw += piece
    head, _, body = raw.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    size = int(headers.get("content-length", "0"))
    while len(body) < size and (piece := _receive(line)):
        body += piece
    return Heard(int(status.split()[1]), headers, body)


def _receive(line: socket.socket) -> bytes:
    try:
        return line.recv(1 << 20)
    except ConnectionError:
        return b""


def request(
    port: int,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    host: str | None = "127.0.0.1:{port}",
    headers: tuple[tuple[str, str], ...] = (),
    content_type: str | None = "application/json",
) -> bytes:
    """The bytes of a request; `{port}` in `host` stands for the server's."""
    fields = [] if host is None else [("Host", host.format(port=port))]
    if body:
        fields.append(("Content-Length", str(len(body))))
        fields += [("Content-Type", content_type)] if content_type is not None else []
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in (*fields, *headers))]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def ask(port: int, method: str, path: str, body: bytes = b"", **more: object) -> Heard:
    """Send what `request` makes of the same arguments."""
    return exchange(port, request(port, method, path, body, **more))


def post(port: int, path: str, message: JsonValue, headers: tuple[tuple[str, str], ...] = ()) -> Heard:
    return ask(port, "POST", path, jsontext.encode(message), headers=headers)
