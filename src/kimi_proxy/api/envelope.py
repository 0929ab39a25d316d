"""What every request of MCP 2026-07-28 says of itself, in `_meta` and again in HTTP headers."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping

from kimi_proxy.core.errors import HeaderMismatch, InvalidParams, UnsupportedVersion
from kimi_proxy.core.jsonrpc import Call
from kimi_proxy.core.types import JsonValue

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"

VERSION_HEADER = b"mcp-protocol-version"
METHOD_HEADER = b"mcp-method"
NAME_HEADER = b"mcp-name"

# Methods whose Mcp-Name header repeats one of their params.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Headers = Iterable[tuple[bytes, bytes]]

_BASE64 = re.compile(r"=\?base64\?(.*)\?=")


def meta_of(call: Call) -> Mapping[str, JsonValue]:
    meta = call.params.get("_meta")
    return meta if isinstance(meta, Mapping) else {}


def check(call: Call, headers: Headers | None, supported: tuple[str, ...]) -> None:
    """Refuse a request whose envelope is incomplete, contradicts its headers, or names another version."""
    meta = meta_of(call)
    for key in (VERSION, CAPABILITIES):
        if key not in meta:
            raise InvalidParams(f"_meta.{key}", "every request must carry it")
    version = meta[VERSION]
    if not isinstance(version, str):
        raise InvalidParams(f"_meta.{VERSION}", "must be a string")
    if headers is not None:
        _check_headers(call, version, headers)
    if version not in supported:
        raise UnsupportedVersion(version, supported)


def header(headers: Headers, name: bytes) -> str | None:
    """The one value of a header; two copies could be read differently by two readers."""
    values = [value for key, value in headers if key == name]
    if len(values) > 1:
        raise HeaderMismatch(f"{name.decode()} appears more than once")
    return values[0].decode("latin-1").strip() if values else None


def _check_headers(call: Call, version: str, headers: Headers) -> None:
    _must_equal(headers, VERSION_HEADER, version)
    _must_equal(headers, METHOD_HEADER, call.method)
    name = call.params.get(NAMED_BY.get(call.method, ""))
    if isinstance(name, str):
        _must_equal(headers, NAME_HEADER, name)


def _must_equal(headers: Headers, name: bytes, expected: str) -> None:
    given = header(headers, name)
    if given is None or _plain(given) != expected:
        said = "is missing" if given is None else "differs from the body"
        raise HeaderMismatch(f"the header {name.decode()} {said}")


def _plain(value: str) -> str | None:
    """A header's text; None, which equals nothing, if its base64 form is broken."""
    encoded = _BASE64.fullmatch(value)
    if encoded is None:
        return value
    try:
        raw = base64.b64decode(encoded[1], validate=True)
        return raw.decode("utf-8") if base64.b64encode(raw).decode("ascii") == encoded[1] else None
    except (binascii.Error, UnicodeDecodeError):
        return None
