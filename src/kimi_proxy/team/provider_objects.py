"""Ids in a request that may name objects which a provider keeps: stored answers and their items, files, containers, …

A provider keeps them for everyone who has its key, so that with a shared key one person could read those of another.
An id counts as harmless only if its kind is known to be: a label of the client's own choice, the id of a call, or that
of an item whose contents the request has too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.wires.protocol import ITEM, Place
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue

# Labels that no provider keeps anything under, and ids of calls, which belong to the conversation in the request.
_HARMLESS = frozenset(
    """
    call_id tool_call_id tool_use_id custom_id user_id session_id external_session_id turn_id request_id trace_id
    model_id user_prompt_id previous_message_id skill_id
    """.split()
)
# Names of kept objects that do not end as those of ids do.
_NAMES = frozenset(
    """
    conversation container cached_content file_search_store_names datastore data_store data_stores rag_corpus
    rag_corpora vector_store vector_stores
    """.split()
)
_ENDINGS = frozenset({"id", "ids", "uri", "uris"})
_PUBLIC = ("http://", "https://", "data:")

# The client's own words: no provider looks up an id in them.
_METADATA = frozenset({"metadata", "client_metadata", "internal_chat_message_metadata_passthrough"})
_SCHEMAS = frozenset({"parameters", "parameters_json_schema", "input_schema", "output_schema", "response_json_schema"})
_SCHEMAS |= {"response_schema", "schema", "headers"}
_DESCRIBING = frozenset({"tools", "functions", "function_declarations", "response_format", "text", "generation_config"})
_DESCRIBING |= {"output_config", "output_format"}

_FIELD = re.compile(rb'^content-disposition:[^\r\n]*?\bname="?([^";\r\n]*)', re.I | re.M)
_WORDS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def suspect_id(wire: Wire, body: bytes) -> str:
    """Return the place of a member that may hold the id of a kept object, such as `input.id`; "" if there is none.

    Raise ParseError if the body can be read in two ways, or in none.
    """
    if not body:
        return ""
    try:
        value: JsonValue = json.loads(body.decode("utf-8", "surrogateescape"), object_pairs_hook=_object)
        return next(_suspects(wire, value, ()), "")
    except (ValueError, RecursionError) as e:
        raise ParseError(f"the body is not readable JSON: {str(e)[:200]}") from e


def suspect_field(form: bytes) -> str:
    """Return the name of a field of a form that may hold the id of a kept object; "" if there is none."""
    names = (match[1].decode("latin-1") for match in _FIELD.finditer(form))
    return next((name for name in names if any(_is_reference(part) for part in re.split(r"[\[\].]", name))), "")


def _object(members: list[tuple[str, JsonValue]]) -> JsonObject:
    read = dict(members)
    if len(read) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice[:60]!r} appears twice in one object: remove one of them")
    return read


def _suspects(wire: Wire, value: JsonValue, place: Place) -> Iterator[str]:
    """Yield the places of such members, by the names around them."""
    if isinstance(value, list):
        for each in value:
            if isinstance(each, dict | list):
                yield from _suspects(wire, each, (*place, ITEM))
    elif isinstance(value, dict):
        for name, each in value.items():
            if _is_opaque(wire, value, name, place):
                continue
            is_harmless = name == "id" and wire.format.is_whole(place, value)
            if (_is_text(each) and _is_reference(name) and not is_harmless) or _is_file_address(name, each):
                yield ".".join(part for part in (*place, name) if part != ITEM)
            if isinstance(each, dict | list):
                yield from _suspects(wire, each, (*place, name))


def _is_text(value: JsonValue) -> bool:
    """Return whether a member may be a reference: a text, or a list of them."""
    return bool(value) and (isinstance(value, str) or (isinstance(value, list) and any(map(_is_text, value))))


@lru_cache(maxsize=4096)
def _snake(name: str) -> str:
    """Return a name in snake_case, whatever style it has."""
    return "_".join(word.lower() for word in _WORDS.findall(name))


def _is_reference(name: str) -> bool:
    """Return whether a member of this name refers to something, as far as its name says."""
    snake = _snake(name)
    return snake not in _HARMLESS and (snake in _NAMES or snake.rpartition("_")[2] in _ENDINGS)


def _is_file_address(name: str, value: JsonValue) -> bool:
    """Return whether a member has an address that only its provider knows, such as Moonshot's `ms://` of a file."""
    is_address = isinstance(value, str) and bool(value) and _snake(name).rpartition("_")[2] == "url"
    return is_address and not str(value).lower().startswith(_PUBLIC)


def _is_opaque(wire: Wire, holder: Mapping[str, JsonValue], name: str, place: Place) -> bool:
    """Return whether a member holds words of the client's own, such as the arguments of a call."""
    snake = _snake(name)
    if snake in _METADATA:
        return True
    if snake in _SCHEMAS:
        return any(_snake(outer) in _DESCRIBING for outer in place)
    return wire.format.is_opaque(place, holder, name)
