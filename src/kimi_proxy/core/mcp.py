"""Both forms of the Model Context Protocol, with a handshake and stateless, and the translation between them.

Until 2025-11-25 a connection begins with `initialize`. Since 2026-07-28 there is no handshake: each request has its
protocol version in `params._meta`, and each result its type in `resultType`."""

from collections.abc import Mapping

from kimi_proxy import __version__
from kimi_proxy.core.json import JsonObject, JsonValue

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS_VERSIONS = ("2026-07-28",)

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_SERVER = "io.modelcontextprotocol/serverInfo"
PROGRESS = "progressToken"
_ENVELOPE = frozenset({META_VERSION, META_CAPABILITIES, META_CLIENT})

# Methods whose Mcp-Name header repeats one of their params.
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
CACHEABLE = frozenset(
    ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read")
)
# What servers with a handshake have and stateless ones have not.
REMOVED = frozenset({"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})

PRUNER_SERVER = "mcp-pruner"  # as the pruner and the agent tools of a run call themselves
OURSELVES: JsonObject = {"name": "kimi-proxy", "version": __version__}


def meta_of(message: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    match message:
        case {"params": {"_meta": Mapping() as meta}}:
            return meta
    return {}


def is_stateless(message: Mapping[str, JsonValue]) -> bool:
    return META_VERSION in meta_of(message)


def add_envelope(message: JsonObject) -> JsonObject:
    """Return `message` in the envelope of the stateless protocol; a client that wrote its own keeps it."""
    if is_stateless(message):
        return message
    params = message.get("params")
    ours: JsonObject = {META_VERSION: STATELESS_VERSIONS[0], META_CAPABILITIES: {}, META_CLIENT: OURSELVES}
    meta = {**ours, **meta_of(message)}
    return {**message, "params": {**(params if isinstance(params, Mapping) else {}), "_meta": meta}}


def bare(message: JsonObject) -> JsonObject:
    """Return `message` without the stateless envelope, which servers with a handshake may refuse."""
    if not is_stateless(message):
        return message
    meta = {key: value for key, value in meta_of(message).items() if key not in _ENVELOPE}
    params = message.get("params")
    rest = {key: value for key, value in params.items() if key != "_meta"} if isinstance(params, Mapping) else {}
    return {**message, "params": {**rest, "_meta": meta} if meta else rest}


def with_progress_token(message: JsonObject, token: JsonValue) -> JsonObject:
    """Return a request under another progress token, if it has one."""
    meta = meta_of(message)
    params = message.get("params")
    if PROGRESS not in meta or not isinstance(params, Mapping):
        return message
    return {**message, "params": {**params, "_meta": {**meta, PROGRESS: token}}}


def with_progress(notice: JsonObject, token: JsonValue) -> JsonObject:
    """Return a notice of progress under another token."""
    params = notice.get("params")
    return {**notice, "params": {**(params if isinstance(params, Mapping) else {}), PROGRESS: token}}


def stamp_result(method: str, result: JsonObject, server: JsonValue) -> JsonObject:
    """Return a result of a server with a handshake in the form of the stateless protocol."""
    if "resultType" in result:
        return result
    # The server did not say how long the list stays valid.
    fresh: JsonObject = {"ttlMs": 0, "cacheScope": "private"} if method in CACHEABLE else {}
    meta = result.get("_meta")
    known: JsonObject = {} if server is None else {META_SERVER: server}
    return {
        **fresh,
        **result,
        "resultType": "complete",
        "_meta": {**known, **(meta if isinstance(meta, Mapping) else {})},
    }
