"""One dispatch for every door: a decoded message in, what to send back out."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from kimi_proxy.api.catalog import Catalog
from kimi_proxy.api.envelope import Headers
from kimi_proxy.api.eras import Door, Era
from kimi_proxy.api.errors import rpc_failure
from kimi_proxy.core import jsonrpc, jsontext
from kimi_proxy.core.errors import InvalidRequest, KimiProxyError, ParseError
from kimi_proxy.core.jsonrpc import Call, RpcId
from kimi_proxy.core.types import JsonObject, JsonValue
from kimi_proxy.services.tools.request import parse_failed

MAX_BATCH = 100

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """What to send back, and the HTTP status for it; None if nothing was asked."""

    value: JsonValue
    status: int


NOTHING = Reply(None, 202)


async def reply(raw: bytes, door: Door, catalog: Catalog, headers: Headers | None = None) -> Reply:
    """Answer one JSON text; `headers` are those it came with, if it came over HTTP."""
    try:
        message = jsontext.decode(raw)
    except ParseError as e:
        parse_failed(str(e))
        return _refusal(None, e, door.era)
    return await reply_to(message, door, catalog, headers)


async def reply_to(message: JsonValue, door: Door, catalog: Catalog, headers: Headers | None = None) -> Reply:
    try:
        if isinstance(message, list):
            return await _reply_to_all(message, door.era, catalog)
        call = jsonrpc.read(message)
    except InvalidRequest as e:
        return _refusal(jsonrpc.id_of(message), e, door.era)
    if call is None or call.notification:
        return NOTHING
    era = door.era_of(call, headers or ())
    response = await answer(call, era, catalog, headers)
    return Reply(response, era.status_of(response))


async def answer(call: Call, era: Era, catalog: Catalog, headers: Headers | None = None) -> JsonObject:
    """The response to a call: its result, or what was wrong with it."""
    try:
        result = await era.serve(call, catalog, headers)
    except KimiProxyError as e:
        return rpc_failure(call.id, e)
    except Exception as e:  # whoever waits for this id gets an answer, whatever broke
        log.exception("call failed", extra={"method": call.method[:80]})
        return rpc_failure(call.id, e)
    return jsonrpc.success(call.id, result)


async def _reply_to_all(messages: Sequence[JsonValue], era: Era, catalog: Catalog) -> Reply:
    if not 0 < len(messages) <= MAX_BATCH:
        raise InvalidRequest(f"a batch holds 1 to {MAX_BATCH} messages")
    responses = [await _reply_to_one(message, era, catalog) for message in messages]
    asked = [response for response in responses if response is not None]
    return Reply(asked, 200) if asked else NOTHING


async def _reply_to_one(message: JsonValue, era: Era, catalog: Catalog) -> JsonObject | None:
    try:
        call = jsonrpc.read(message)
    except InvalidRequest as e:
        return rpc_failure(jsonrpc.id_of(message), e)
    return None if call is None or call.notification else await answer(call, era, catalog)


def _refusal(call_id: RpcId, error: KimiProxyError, era: Era) -> Reply:
    response = rpc_failure(call_id, error)
    return Reply(response, era.status_of(response))
