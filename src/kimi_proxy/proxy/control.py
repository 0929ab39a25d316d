"""Talks to a kimi-proxy that runs on this machine."""

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from pydantic import SecretStr

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import BadRequest, ParseError, UpstreamError, UpstreamUnreachable
from kimi_proxy.core.types import JsonObject, JsonValue


class Control:
    def __init__(self, url: str, token: SecretStr | None, timeout_s: float) -> None:
        self._url = url
        self._token = token
        self._timeout_s = timeout_s

    def get(self, path: str) -> JsonObject:
        return self._asked("GET", path, None)

    def post(self, path: str, body: Mapping[str, JsonValue]) -> JsonObject:
        return self._asked("POST", path, jsontext.encode(body))

    def _asked(self, method: str, path: str, body: bytes | None) -> JsonObject:
        where = urlsplit(self._url)
        connection = HTTPConnection(where.hostname or "", where.port, timeout=self._timeout_s)
        try:
            connection.request(method, path, body, self._headers())
            answer = connection.getresponse()
            return _read(answer.status, answer.read())
        except (OSError, HTTPException, ParseError) as e:
            raise UpstreamUnreachable(f"kimi-proxy on {self._url} did not answer: {e}") from e
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        token = {} if self._token is None else {"Authorization": f"Bearer {self._token.get_secret_value()}"}
        return {"Content-Type": "application/json", **token}


def _read(status: int, body: bytes) -> JsonObject:
    match jsontext.decode(body):
        case {"error": {"message": str(problem)}}:
            raise BadRequest(problem) if status < 500 else UpstreamError(problem)
        case dict(value):
            return value
    raise UpstreamError(f"kimi-proxy answered HTTP {status}")
