"""Real processes: several servers with one PostgreSQL behind one balancer, and a provider that counts what it gets."""

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import IO

import httpx
from tests.support.checkout import ROOT
from tests.support.conversations import Assistant, Call, Item, Result, User, body
from tests.support.forks import Fork, commands
from tests.support.outputs import pytest_log
from tests.support.services.store.postgres_server import PostgresServer, controlled

from kimi_proxy.core.chat import Wire

PATIENCE_S = 120
PATH = "/v1/chat/completions"
# Ids of originals in the marker of a cut.
IDS = re.compile(rb"(?:prn|msk)_[0-9a-hjkmnp-tv-z]{16}")
# A busy machine cuts late, not never; what is short is cut too, so that long conversations stay small.
SETTINGS = """
[access]
allowed_hosts = ["127.0.0.1:{balancer}"]
[sanitizer]
budget_ms = 60000
threshold_tokens = 300
[providers.openai-evil]
type = "openai"
base_url = "http://127.0.0.1:{port}/v1"
"""


class Provider:
    """Answers every request at once, or with a stream that ends only when it is let go."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.came = threading.Condition()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(404)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                sent = self.rfile.read(int(self.headers["content-length"]))
                with provider.came:
                    provider.bodies.append(sent)
                    provider.came.notify_all()
                if b'"stream": true' in sent:
                    self._stream()
                else:
                    self._answer(b'{"choices":[{"message":{"role":"assistant","content":"ok"}}]}')

            def _answer(self, answer: bytes) -> None:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def _stream(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                try:
                    while True:
                        self.wfile.write(b'data: {"choices":[{"delta":{"content":"more "}}]}\n\n')
                        time.sleep(0.02)
                except OSError:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512  # of connections that come at once

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wait_for(self, count: int) -> None:
        """Return once so many requests came."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.bodies) >= count, PATIENCE_S), "the provider was not asked"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Replica:
    """One server; killed and started again, it keeps its port."""

    def __init__(self, home: Path, settings: Path, url: str, env: Mapping[str, str] = MappingProxyType({})) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        home.mkdir()
        self._home = home
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KIMI_PROXY_HOME": str(home / "state"),
            "KIMI_PROXY_CONFIG": str(settings),
            "KIMI_PROXY_DATABASE_URL": url,
            "KIMI_PROXY_PORT": str(self.port),
            "MCP_PRUNER_PORT": "0",
            **env,
        }
        self._alive = ExitStack()
        self._process: Fork | None = None

    def start(self) -> None:
        process = self._alive.enter_context(commands().started(["start"], self._home, self._env))
        self._process = process
        for stream in (process.stdout, process.stderr):
            threading.Thread(target=drain, args=(stream,), daemon=True).start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def wait(self) -> None:
        """Return once it answers."""
        wait_for(f"{self.url}/health/ready")

    def kill(self) -> None:
        """End it without a word, as a crash does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._alive.close()

    def close(self) -> None:
        self._alive.close()


class Fleet:
    def __init__(self, replicas: Sequence[Replica], provider: Provider, postgres: PostgresServer, url: str) -> None:
        self.replicas = replicas
        self.provider = provider
        self.postgres = postgres
        self.url = url  # of the balancer
        self.http = httpx.Client(timeout=PATIENCE_S, trust_env=False)

    def ask(self, items: Sequence[Item], url: str = "", http: httpx.Client | None = None) -> httpx.Response:
        """Send a conversation through the balancer, or to one replica."""
        headers = {"content-type": "application/json"}
        return (http or self.http).post((url or self.url) + PATH, content=body(Wire.CHAT, items), headers=headers)


@contextmanager
def fleet(home: Path, count: int = 3) -> Iterator[Fleet]:
    with ExitStack() as alive:
        postgres = alive.enter_context(controlled())
        provider = Provider()
        alive.callback(provider.close)
        settings, balancer = home / "config.toml", free_port()
        settings.write_text(SETTINGS.format(port=provider.port, balancer=balancer))
        replicas = [Replica(home / str(at), settings, postgres.url) for at in range(count)]
        for replica in replicas:
            alive.callback(replica.close)
            replica.start()
        for replica in replicas:
            replica.wait()
        url = alive.enter_context(balanced(home, balancer, [replica.port for replica in replicas]))
        here = Fleet(replicas, provider, postgres, url)
        alive.callback(here.http.close)
        yield here


def balancer_name() -> str:
    """Return which balancer the tests run with here."""
    return "nginx" if _nginx() else "a round-robin TCP balancer of the tests: Debian's nginx-light is not installed"


def _nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


@contextmanager
def balanced(home: Path, port: int, ports: Sequence[int]) -> Iterator[str]:
    """Run nginx with the settings of deploy/, else a balancer of our own; give its address."""
    nginx = _nginx()
    if nginx is None:
        with _own_balancer(port, ports):
            yield f"http://127.0.0.1:{port}"
        return
    settings = (ROOT / "deploy" / "nginx.conf").read_text()
    first, second = "server kimi-proxy-1:8000", "server kimi-proxy-2:8000 max_fails=1 fail_timeout=2s;"
    assert first in settings
    assert second in settings
    others = "\n".join(f"server 127.0.0.1:{one} max_fails=1 fail_timeout=2s;" for one in ports[1:])
    settings = settings.replace(first, f"server 127.0.0.1:{ports[0]}").replace(second, others)
    everywhere = "listen 8000 backlog=4096 reuseport;"
    assert settings.count(everywhere) == 1, "tests bind loopback"
    # Without a master process, nginx does not accept on a port that is shared by its workers.
    settings = settings.replace(everywhere, f"listen 127.0.0.1:{port};")
    places = "\n".join(
        f"{name}_temp_path {home}/nginx-{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    settings = settings.replace("http {", f"http {{\naccess_log off;\n{places}", 1)
    file = home / "nginx.conf"
    file.write_text(f"daemon off;\nmaster_process off;\npid {home}/nginx.pid;\nerror_log {home}/nginx.log;\n{settings}")
    process = subprocess.Popen([nginx, "-c", str(file), "-p", str(home)], stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/health/live")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextmanager
def _own_balancer(port: int, ports: Sequence[int]) -> Iterator[None]:
    """Pass each connection to the next server that takes it."""
    listening = socket.create_server(("127.0.0.1", port))
    turn = iter(range(10**9))

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            for _ in ports:
                try:
                    server = socket.create_connection(("127.0.0.1", ports[next(turn) % len(ports)]))
                    break
                except OSError:
                    continue
            else:
                client.close()
                continue
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        listening.close()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(65_536):
            other.sendall(data)
    for each in (one, other):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def wait_for(url: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        with suppress(httpx.HTTPError):
            if httpx.get(url, timeout=PATIENCE_S, trust_env=False).status_code == 200:
                return
        assert time.monotonic() < end, f"{url} does not answer"
        time.sleep(0.05)


def drain(stream: IO[bytes]) -> None:
    with suppress(OSError, ValueError):
        while stream.read(65_536):
            pass


def messages(raw: bytes) -> list[str]:
    """Return the messages of a request as they were sent, each as its JSON."""
    return [json.dumps(message) for message in json.loads(raw)["messages"]]


def turn(number: int, name: str = "") -> list[Item]:
    """Return a question, a call, and a result that is long enough to be cut."""
    call = f"call_{name}{number:06}"
    text = f"run {name}{number}\n{pytest_log(60, number).text}"
    return [User(f"Turn {name}{number}: why does it fail?"), Assistant("", (Call(call),)), Result(call, text)]


def cut_ids(raw: bytes) -> list[str]:
    return [id.decode() for id in IDS.findall(raw)]
