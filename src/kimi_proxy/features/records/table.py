"""Lossless tables: JSON records with the same fields, written as a header and rows, with constant fields only once.

A table is JSON too. It is used only if it decodes to the same value, type by type, and is a fifth shorter. Its first
line is a marker: writing it into a file is refused, and its id restores the original bytes.
"""

import json
from collections.abc import Callable, Iterator

from kimi_proxy.core.json import JsonValue, is_container
from kimi_proxy.core.markers import MaskMarker
from kimi_proxy.features.records.formats import JSON_TOKEN, read_json
from kimi_proxy.features.records.tree import ELEMENT, MEMBER, Node

MIN_ROWS = 4
MIN_SAVING = 0.2  # of the characters
CONSTANTS, COLUMNS, ROWS = "constants", "columns", "rows"
SAID = "nothing is left out: where there are columns, each row has their values, and constants hold in every row"


def write_table(text: str) -> Callable[[str], str] | None:
    """Return a function from an id to the table of a JSON text; None if it is no JSON, or would save too little."""
    if not is_container(text):
        return None
    short = "".join(token[0] for token in JSON_TOKEN.finditer(text))
    root = read_json(short)
    if root is None:
        return None
    table = _with_tables(short, root)

    def written(mask_id: str) -> str:
        marker = str(MaskMarker(mask_id, len(text), 0, 0)).strip()
        return f"{{{json.dumps(f'{marker} {SAID}')}:\n{table}}}"

    if len(written("msk_" + "0" * 16)) > (1 - MIN_SAVING) * len(text):
        return None
    return written if _is_same(text, table) else None


def read_table(value: JsonValue) -> JsonValue:
    """Return the value that the tables in `value` encode."""
    if isinstance(value, dict):
        if value.keys() == {CONSTANTS, COLUMNS, ROWS}:
            constants = value[CONSTANTS]
            columns = value[COLUMNS]
            rows = value[ROWS]
            if isinstance(constants, dict) and isinstance(columns, list) and isinstance(rows, list):
                return [{**constants, **dict(zip(map(str, columns), _cells(row), strict=True))} for row in rows]
        return {key: read_table(inside) for key, inside in value.items()}
    return [read_table(inside) for inside in value] if isinstance(value, list) else value


def _cells(row: JsonValue) -> Iterator[JsonValue]:
    return map(read_table, row) if isinstance(row, list) else iter(())


def _with_tables(text: str, node: Node) -> str:
    """Return the text of a node with each list of equal records written as a table."""
    if not node.children or node.style not in (ELEMENT, MEMBER):
        return text[node.start : node.end]
    keys = [child.key for child in node.children[0].children]
    if node.style is ELEMENT and _are_alike(node, keys):
        key = text[node.start : text.index("[", node.start)] if node.key else ""
        return key + _table(text, node, keys)
    pieces: list[str] = []
    at = node.start
    for child in node.children:
        pieces += (text[at : child.start], _with_tables(text, child))
        at = child.end
    return "".join((*pieces, text[at : node.end]))


def _are_alike(node: Node, keys: list[str]) -> bool:
    if len(node.children) < MIN_ROWS or not keys or len(set(keys)) < len(keys):
        return False
    return all(one.style is MEMBER and [child.key for child in one.children] == keys for one in node.children)


def _table(text: str, node: Node, keys: list[str]) -> str:
    rows = [[_value(text, child) for child in record.children] for record in node.children]
    equal = [len({row[at] for row in rows}) == 1 for at in range(len(keys))]
    constants = ",".join(f'"{key}":{rows[0][at]}' for at, key in enumerate(keys) if equal[at])
    columns = ",".join(f'"{key}"' for at, key in enumerate(keys) if not equal[at])
    lines = ",\n".join(f"[{','.join(cell for at, cell in enumerate(row) if not equal[at])}]" for row in rows)
    return f'{{"{CONSTANTS}":{{{constants}}},"{COLUMNS}":[{columns}],"{ROWS}":[\n{lines}]}}'


def _value(text: str, member: Node) -> str:
    """Return a member of minified JSON, exactly as written."""
    return text[member.start + len(member.key) + 3 : member.end]


def _is_same(text: str, table: str) -> bool:
    """Return whether both are the same value, numbers compared as they are written: `1` is not `1.0`, nor `"1"`."""
    before = _exact(text)
    after = _exact(table)
    return not _holds_table(before) and read_table(after) == before


def _exact(text: str) -> JsonValue:
    value: JsonValue = json.loads(text, parse_int=_number, parse_float=_number)
    return value


def _number(digits: str) -> str:
    return f"\0{digits}"  # no string of JSON reads so: NUL is written as an escape, and no number has one


def _holds_table(value: JsonValue) -> bool:
    rest = [value]
    while rest:
        inside = rest.pop()
        if isinstance(inside, dict):
            if inside.keys() == {CONSTANTS, COLUMNS, ROWS}:
                return True
            rest += inside.values()
        elif isinstance(inside, list):
            rest += inside
    return False
