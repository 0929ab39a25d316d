"""Servers of ours on this machine: who holds a port, how a running one is controlled, one of our own for a run."""

import asyncio
from asyncio.subprocess import DEVNULL
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import AF_INET, AF_INET6, SOCK_DGRAM, socket
from typing import Self
from urllib.parse import urlsplit

from pydantic import SecretStr

from kimi_proxy.core import json
from kimi_proxy.core.errors import BadRequest, ParseError, UpstreamError, UpstreamUnreachable
from kimi_proxy.core.json import JsonObject, JsonValue
from kimi_proxy.proxy.process import GRACE_S, Command, OrphanCleanup, Process

TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 64 * 1024
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - named to be replaced


@dataclass(frozen=True, slots=True)
class PortOwner:
    """A program that holds a port; `server` is empty when it is not one of ours."""

    server: str = ""
    version: str = ""
    status: str = ""

    def __str__(self) -> str:
        return f"{self.server} {self.version}".strip() or "another program, which is not kimi-proxy"


def local_url(host: str, port: int) -> str:
    """Return the address that a client on this machine uses."""
    reachable = ANY.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def outward_address(host: str) -> str | None:
    """Return the address under which this machine's network knows it, in brackets if it is IPv6; None without one."""
    family, anywhere = (AF_INET6, "2001:db8::1") if ":" in host else (AF_INET, "192.0.2.1")  # for documents only
    try:
        with socket(family, SOCK_DGRAM) as asking:
            asking.connect((anywhere, 9))  # sends nothing: it only chooses a route
            address = str(asking.getsockname()[0])
    except OSError:
        return None
    return f"[{address}]" if ":" in address else address


def port_owner(host: str, port: int) -> PortOwner | None:
    """Return the program that listens there; None if none does."""
    connection = HTTPConnection(ANY.get(host, host), port, timeout=TIMEOUT_S)
    try:
        connection.connect()
    except OSError:
        return None
    try:
        connection.request("GET", "/health")
        match json.decode(connection.getresponse().read(MAX_ANSWER_BYTES)):
            case {"server": "mcp-pruner" | "kimi-proxy" as server, "version": str(version), "status": str(status)}:
                return PortOwner(server, version, status)
    except (OSError, HTTPException, ParseError):
        pass
    finally:
        connection.close()
    return PortOwner()


class ControlClient:
    """Asks a running kimi-proxy, from another process."""

    def __init__(self, url: str, token: SecretStr | None, timeout_s: float) -> None:
        self._url = url
        self._token = token
        self._timeout_s = timeout_s

    def get(self, path: str) -> JsonObject:
        return self._request("GET", path, None)

    def post(self, path: str, body: Mapping[str, JsonValue]) -> JsonObject:
        return self._request("POST", path, json.encode(body))

    def _request(self, method: str, path: str, body: bytes | None) -> JsonObject:
        where = urlsplit(self._url)
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        connection = HTTPConnection(where.hostname or "", where.port, timeout=self._timeout_s)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return _read(answer.status, answer.read())
        except (OSError, HTTPException, ParseError) as e:
            raise UpstreamUnreachable(f"no valid response from kimi-proxy on {self._url}: {e}") from e
        finally:
            connection.close()


def _read(status: int, body: bytes) -> JsonObject:
    match json.decode(body):
        case {"error": {"message": str(problem)}}:
            raise BadRequest(problem) if status < 500 else UpstreamError(problem)
        case dict(value):
            return value
    raise UpstreamError(f"kimi-proxy answered HTTP {status}")


MAX_LINE_BYTES = 64 * 1024


class LocalServer(Process):
    """One of our servers in a separate process, which does not outlive us; `address` is the one that it reports."""

    def __init__(self) -> None:
        self._own_orphans = OrphanCleanup()
        super().__init__(self._own_orphans)
        self.address: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self._line = b""

    @classmethod
    async def start(cls, command: Command, log: Path) -> Self:
        """Return the started server, whose standard error goes to `log`; raise UpstreamUnreachable if that fails."""
        server = cls()
        try:
            with log.open("ab") as errors:
                await server.launch(command, stdin=DEVNULL, stderr=errors)
        except (OSError, ValueError) as e:
            raise UpstreamUnreachable(f"{command.argv[0]} cannot be started: {e}") from e
        return server

    async def end(self, leave_s: float = 0.0, grace_s: float = GRACE_S) -> bool:
        in_time = await super().end(leave_s, grace_s)
        self._own_orphans.close()
        return in_time

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if self.address.done():
            return
        *lines, rest = (self._line + data).split(b"\n")
        self._line = rest[-MAX_LINE_BYTES:]
        for line in lines:
            found = _address(line)
            if found is not None and not self.address.done():
                self.address.set_result(found)


def _address(line: bytes) -> tuple[str, int] | None:
    try:
        match json.decode(line):
            case {"url": str(url)}:
                host, _, port = url.removeprefix("http://").rpartition(":")
                return host, int(port)
    except (ParseError, ValueError):
        pass
    return None
