"""Errors as JSON-RPC responses, and as text for a model; without HTTP, which stdio does not need."""

from kimi_proxy.core import jsonrpc
from kimi_proxy.core.errors import InvalidParams, KimiProxyError
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.jsonrpc import RpcId

INTERNAL = "internal error: the server's log has the details"


def advice(error: KimiProxyError) -> str:
    """Return what a model reads when its tool call failed: the code, what is wrong, what to do next."""
    if isinstance(error, InvalidParams):
        return f"{error.code}: {error}. Correct the argument {error.field!r} and call the tool again."
    return f"{error.code}: {error}"


def rpc_failure(call_id: RpcId, error: Exception) -> JsonObject:
    """Return an error as a JSON-RPC response; an error that isn't ours reveals nothing but its code."""
    if isinstance(error, KimiProxyError):
        return jsonrpc.failure_of(call_id, error)
    return jsonrpc.failure(call_id, KimiProxyError.rpc_code, INTERNAL, {"code": KimiProxyError.code})
