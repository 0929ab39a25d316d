"""The ids of provider objects in a request or a response: stored responses, message batches, files, containers.

Most requests contain none, which a search of their bytes shows. It also detects encodings that could hide an id.
"""

import json as stdlib_json
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from urllib.parse import parse_qsl, urlencode

from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.json import JsonObject, JsonValue

CURSORS = ("after", "before", "after_id", "before_id")  # of lists, in the query
MAX_ID_CHARS = 512  # no provider makes a longer one
MIN_TOKEN_CHARS = 24

_NAMES = (
    *("previous_response_id", "file_id", "input_file_id", "output_file_id", "error_file_id", "container_id"),
    *("cachedContent", "cached_content"),
)
_LISTS = ("file_ids", "vector_store_ids")
_IDS_OR_HOLDERS = ("conversation", "container")  # an id, or an object that has one
_HOLDERS = (*_IDS_OR_HOLDERS, "audio")
_OPAQUE = ("metadata", "input_schema", "parameters", "schema", "arguments")  # the client's own words
_KEYS = (*_NAMES, *_LISTS, *_HOLDERS)
# A letter of a key may be written as an escape, and a key in UTF-16 has NUL bytes.
_HIDDEN = r"\\u00[2-7]|\x00"
_SEARCH = re.compile(rf'"(?:{"|".join(_KEYS)})"|{_HIDDEN}'.encode())
_SEARCH_WITH_ITEMS = re.compile(rf'"(?:{"|".join(_KEYS)}|id)"|{_HIDDEN}'.encode())

Swap = Callable[[str], str]


def may_name_objects(raw: bytes, has_items: bool) -> bool:
    """Return whether a body, or an event, may name objects. Where an answer has items, each has an id."""
    return (_SEARCH_WITH_ITEMS if has_items else _SEARCH).search(raw) is not None


def named_in(raw: bytes, has_items: bool) -> tuple[JsonValue, frozenset[str]]:
    """Return the value of a request's body and the ids that it names; None if its bytes show that it names none.

    Raise ParseError if it can be read in two ways, or in none: a key that counts is there twice.
    """
    if not may_name_objects(raw, has_items):
        return None, frozenset()
    try:
        value: JsonValue = stdlib_json.loads(raw.decode(), object_pairs_hook=_object)
        return value, ids_in(value)
    except (ValueError, RecursionError) as e:
        raise ParseError(f"the body is not readable JSON: {str(e)[:200]}") from e


def _object(members: list[tuple[str, JsonValue]]) -> JsonObject:
    read = dict(members)
    if len(read) < len(members):
        names = [name for name, _ in members]
        if twice := [name for name in (*_KEYS, "input", "type", "id", "store") if names.count(name) > 1]:
            raise ParseError(f"{twice[0]!r} appears twice in one object: remove one of them")
    return read


def ids_in(value: JsonValue) -> frozenset[str]:
    """Return the ids of the objects that a request or an answer refers to."""
    found: set[str] = set()

    def note(id: str) -> str:
        found.add(id)
        return id

    swap_ids(value, note)
    return frozenset(found)


def swap_ids(value: JsonValue, swap: Swap) -> JsonValue:
    """Return `value` with another id wherever it refers to an object."""
    if isinstance(value, list):
        return [swap_ids(each, swap) for each in value]
    if not isinstance(value, Mapping):
        return value
    is_tool_use = str(value.get("type", "")).endswith("tool_use")
    return {
        name: each if name in _OPAQUE or (is_tool_use and name == "input") else _swap_member(name, each, swap)
        for name, each in value.items()
    }


def _swap_member(name: str, value: JsonValue, swap: Swap) -> JsonValue:
    if isinstance(value, str):
        return swap(value) if value and (name in _NAMES or name in _IDS_OR_HOLDERS) else value
    if isinstance(value, list) and name in _LISTS:
        return [swap(each) if isinstance(each, str) else each for each in value]
    inner = swap_ids(value, swap)
    if isinstance(inner, list) and name == "input":
        return [_swap_item(each, swap) for each in inner]
    id = inner.get("id") if isinstance(inner, dict) and name in _HOLDERS else None
    return {**inner, "id": swap(id)} if isinstance(inner, dict) and isinstance(id, str) else inner


def _swap_item(item: JsonValue, swap: Swap) -> JsonValue:
    """An item without contents is read by the provider from its storage, by its id."""
    id = item.get("id") if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or not isinstance(id, str):
        return item
    kind = item.get("type")
    is_bare = kind == "item_reference" or not (kind or item.get("role"))
    is_reference = is_bare or (kind == "reasoning" and not item.get("encrypted_content"))
    return {**item, "id": swap(id)} if is_reference else item


class AnswerIds(Enum):
    """The ids in a response that belong to its caller, in addition to those of files and containers in it."""

    NONE = 1  # the provider stores none of it
    ITEMS = 2  # it was kept before; a message in it may have an id of the client's own choice
    ALL = 3  # the provider stores it from now on, with its items


def caller_ids(answer: JsonValue, kept: AnswerIds, is_event: bool = False) -> frozenset[str]:
    """Return the ids in an answer that are its caller's. An event of a stream has the answer as its `response`.

    Raise ParseError if it is nested too deep to be read.
    """
    try:
        referred = ids_in(answer)
    except RecursionError as e:
        raise ParseError("the response is nested too deep") from e
    whole = answer.get("response") if is_event and isinstance(answer, Mapping) else answer
    if kept is AnswerIds.NONE or not isinstance(whole, Mapping):
        return referred
    items = [each for each in _objects(whole.get("output")) if kept is AnswerIds.ALL or each.get("type") != "message"]
    made = [each.get("id") for each in (*items, *([whole] if kept is AnswerIds.ALL else []))]
    return referred | {id for id in made if isinstance(id, str) and id}


def given_ids(value: JsonValue) -> frozenset[str]:
    """Return every `id` in a request: an answer that repeats one has not made it."""
    if isinstance(value, list):
        return frozenset().union(*map(given_ids, value))
    if not isinstance(value, Mapping):
        return frozenset()
    own = value.get("id")
    return frozenset([own] if isinstance(own, str) else []).union(*map(given_ids, value.values()))


def _objects(value: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


def cursors_in(query: str) -> frozenset[str]:
    """Return the ids that a query names."""
    return frozenset(value for name, value in parse_qsl(query, keep_blank_values=True) if name in CURSORS and value)


def swap_query(query: str, swap: Swap) -> str:
    """Return a query whose cursors are other ids; the same query if none is."""
    read = parse_qsl(query, keep_blank_values=True)
    swapped = [(name, swap(value) if name in CURSORS and value else value) for name, value in read]
    return query if swapped == read else urlencode(swapped)


def next_page(query: str, page: JsonObject) -> str | None:
    """Return the query of the page after `page`, in the direction of the first; None if that was the last one."""
    read, is_back = dict(parse_qsl(query, keep_blank_values=True)), is_towards_newest(query)
    edge = page.get("first_id" if is_back else "last_id")
    if not page.get("has_more") or not isinstance(edge, str):
        return None
    return urlencode({**read, "before_id" if is_back else "after_id": edge})


def is_towards_newest(query: str) -> bool:
    """Return whether a list is read from an object on towards the newest."""
    return any(name == "before_id" for name, _ in parse_qsl(query))


def own_page(page: JsonObject, listed: list[JsonValue], has_more: bool) -> JsonObject:
    """Return a page of a list with these objects alone."""
    ids = [each.get("id") for each in listed if isinstance(each, Mapping)]
    edges: JsonObject = {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    known = {name: value for name, value in edges.items() if name in page}
    return {**page, **known, "data": listed, **({"has_more": has_more} if "has_more" in page else {})}


def unknown_id(id: str, token: str) -> str:
    """Return an id like this one that no object has: `token` is random, and long enough."""
    prefix = id[: max(id.rfind("_"), id.rfind("-")) + 1] if len(id) <= MAX_ID_CHARS else ""
    return prefix + token[: max(MIN_TOKEN_CHARS, len(id) - len(prefix))]
