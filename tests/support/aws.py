"""Amazon's end of a request, written from its specifications alone: it verifies signatures and frames streams."""

import base64
import hashlib
import hmac
import json
import re
import struct
import zlib
from collections.abc import Iterable
from urllib.parse import quote, unquote

from tests.support.evil import Heard

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([\w-]+)/(\w+)/aws4_request, ?"
    r"SignedHeaders=([\w;-]+), ?Signature=([0-9a-f]{64})"
)


def signed_by(heard: Heard, secret: str, region: str, service: str = "bedrock") -> str:
    """Return the id of the key that signed this request; "" if the signature is not that of `secret`."""
    found = _AUTHORIZATION.fullmatch(heard.header("authorization") or "")
    if found is None or (found[3], found[4]) != (region, service):
        return ""
    key_id, day, _, _, names, signature = found.groups()
    when = heard.header("x-amz-date") or ""
    signed = names.split(";")
    assert "host" in signed and "x-amz-date" in signed and when.startswith(day)
    path, _, query = heard.target.partition("?")
    assert not query
    lines = [heard.method, quote(path, safe="/~"), ""]
    lines += [f"{name}:{' '.join((heard.header(name) or '').split())}" for name in signed]
    lines += ["", names, hashlib.sha256(heard.body).hexdigest()]
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", when, scope, hashlib.sha256("\n".join(lines).encode()).hexdigest()))
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key_id if hmac.new(key, text.encode(), "sha256").hexdigest() == signature else ""


def model_in(heard: Heard) -> str:
    """Return the model that a path names."""
    return unquote(heard.target.split("/model/")[1].rsplit("/", 1)[0])


def framed(events: Iterable[bytes]) -> list[bytes]:
    """Return server-sent events as Bedrock's messages, with the padding that hides how long a word is."""
    datas = (event.split(b"data: ", 1)[1].strip() for event in events)
    return [_message(json.dumps({"bytes": base64.b64encode(data).decode(), "p": "abcd"}).encode()) for data in datas]


def failure(kind: str, text: str) -> bytes:
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return _message(json.dumps({"message": text}).encode(), headers)


def _message(payload: bytes, headers: dict[str, str] | None = None) -> bytes:
    named = headers or {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    coded = b"".join(
        struct.pack("B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in named.items()
    )
    prelude = struct.pack(">II", 16 + len(coded) + len(payload), len(coded))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    whole = prelude + coded + payload
    return whole + struct.pack(">I", zlib.crc32(whole))
