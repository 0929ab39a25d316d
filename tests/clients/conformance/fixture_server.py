"""The fixtures as a program on standard input and output, in one era of the protocol.

python fixture_server.py handshake|stateless
"""

import json
import sys
import time

from tests.clients.conformance.fixtures import CAPABILITIES, METHODS, OLDER, Refusal

from kimi_proxy.core import mcp
from kimi_proxy.core.json import JsonObject

STATELESS = sys.argv[1] == "stateless"
INFO: JsonObject = {"name": "fixtures", "version": "1"}


def introduce(params: JsonObject) -> JsonObject:
    if STATELESS:
        return {"supportedVersions": mcp.STATELESS_VERSIONS, "capabilities": CAPABILITIES}
    older: JsonObject = {"logging": {}, "resources": {"subscribe": True}}
    return {
        "protocolVersion": mcp.HANDSHAKE_VERSIONS[0],
        "capabilities": {**CAPABILITIES, **older},
        "serverInfo": INFO,
    }


SERVED = {**METHODS, **({"server/discover": introduce} if STATELESS else {**OLDER, "initialize": introduce})}


def answer(message: JsonObject) -> JsonObject:
    method, params = str(message["method"]), message.get("params")
    try:
        if method not in SERVED:
            raise Refusal(-32601, "Method not found", {})
        result = SERVED[method](params if isinstance(params, dict) else {})
        return {"result": mcp.stamp_result(method, result, INFO) if STATELESS else result}
    except Refusal as e:
        return {"error": {"code": e.code, "message": e.message, "data": e.data}}


def announce(message: JsonObject) -> None:
    """The one tool that tells of its progress."""
    match message.get("params"):
        case {"name": "test_tool_with_progress", "_meta": {"progressToken": token}}:
            for progress in (0, 50, 100):
                params = {"progressToken": token, "progress": progress, "total": 100}
                print(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}), flush=True)
                time.sleep(0.05)


for line in sys.stdin:
    message = json.loads(line)
    announce(message)
    if "id" in message and "method" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}), flush=True)
