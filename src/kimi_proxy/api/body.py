"""The JSON object that a request brings."""

from starlette.requests import Request

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.types import JsonValue


async def object_in(request: Request, advice: str) -> dict[str, JsonValue]:
    """No body is an empty object; `advice` says what to send in place of anything else."""
    value = jsontext.decode((await request.body()).strip() or b"{}")
    if not isinstance(value, dict):
        raise InvalidParams("body", advice)
    return value
