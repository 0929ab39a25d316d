"""Who answers on a port: told by what `/health` says, not by the port's number."""

from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.types import JsonValue

TIMEOUT_S = 2.0
MAX_ANSWER_BYTES = 64 * 1024
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - named to be replaced


@dataclass(frozen=True, slots=True)
class Occupant:
    """A program that holds a port; `server` is empty when it is not one of ours."""

    server: str = ""
    version: str = ""
    status: str = ""

    def __str__(self) -> str:
        return f"{self.server} {self.version}".strip() or "another program, which is not kimi-proxy"


def url(host: str, port: int) -> str:
    """The address that a client on this machine uses."""
    reachable = ANY.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def occupant(host: str, port: int) -> Occupant | None:
    """Who listens there; None if nobody does."""
    connection = HTTPConnection(ANY.get(host, host), port, timeout=TIMEOUT_S)
    try:
        connection.connect()
    except OSError:
        return None
    try:
        connection.request("GET", "/health")
        return _introduced(jsontext.decode(connection.getresponse().read(MAX_ANSWER_BYTES)))
    except (OSError, HTTPException, ParseError):
        return Occupant()
    finally:
        connection.close()


def _introduced(health: JsonValue) -> Occupant:
    match health:
        case {"server": "mcp-pruner" | "kimi-proxy" as server, "version": str(version), "status": str(status)}:
            return Occupant(server, version, status)
        case _:
            return Occupant()
