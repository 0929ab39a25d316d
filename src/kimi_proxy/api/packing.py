"""Long answers leave packed where the client says that it can unpack them."""

import gzip
import re

from starlette.requests import Request
from starlette.responses import Response

from kimi_proxy.core import jsontext
from kimi_proxy.core.types import JsonValue

WORTH_BYTES = 4096
LEVEL = 1  # each is packed while somebody waits

_REFUSED = re.compile(r"\s*q\s*=\s*0(\.0*)?\s*")


def listed(request: Request, header: str) -> set[str]:
    """The values of a header that lists some, without what follows a `;`, unless that refuses them."""
    values = (each.strip().partition(";") for each in request.headers.get(header, "").split(","))
    return {value.strip() for value, _, weight in values if not _REFUSED.fullmatch(weight)}


def unpacks(request: Request) -> bool:
    return "gzip" in listed(request, "accept-encoding")


def packed_answer(request: Request, value: JsonValue) -> Response:
    """For lists that grow with what has happened."""
    body, headers = jsontext.encode(value), {"vary": "accept-encoding"}
    if len(body) >= WORTH_BYTES and unpacks(request):
        body, headers = gzip.compress(body, LEVEL, mtime=0), {**headers, "content-encoding": "gzip"}
    return Response(body, headers=headers, media_type="application/json")
