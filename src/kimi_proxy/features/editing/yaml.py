"""YAML: an item of a list of named things is set and removed in the text itself."""

import json
import re
from collections.abc import Mapping, Sequence

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonValue

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+-]*(?::[A-Za-z0-9_./@+-]+)*", re.A)
_NOT_TEXT = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))

Pair = tuple[Node, Node]


def parse(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as e:
        raise FileRefused(f"it is not YAML: {' '.join(str(e).split())[:200]}") from e


def put(text: str, key: str, name: str, values: Mapping[str, JsonValue], dropped: Sequence[str] = ()) -> str:
    """`text` with `values` in the item `name` of the list at `key`, and without the keys in `dropped`."""
    listed = _pair(_root(text), key)
    new = {"name": name, **values}
    if listed is None:
        end = "" if not text or text.endswith("\n") else _newline(text)
        return f"{text}{end}{key}:{_newline(text)}{_item(new, '  ', _newline(text))}"
    items = _items(listed, key)
    if not items:
        return _with_first_item(text, listed, new)
    item = _named(items, name)
    if item is None:
        return _with_item_after(text, items[-1], new, " " * listed[1].start_mark.column)
    if item.flow_style:
        raise FileRefused(f"write the item {name!r} of {key} with one key a line")
    for dropped_key in dropped:
        text = _without_key(text, key, name, dropped_key)
    for changed, value in values.items():
        text = _with_key(text, key, name, changed, value)
    return text


def remove(text: str, key: str, name: str) -> str:
    """`text` without the item that is called `name` in the list at `key`. Comments outside of it stay."""
    listed = _pair(_root(text), key)
    items = _items(listed, key) if listed else []
    item = _named(items, name)
    if listed is None or item is None:
        return text
    start = _line_start(text, text.rfind("-", 0, item.start_mark.index))
    end = _line_end(text, _end(text, item))
    rest = text[:start] + text[end + 1 :]
    if len(items) > 1:
        return rest
    colon = text.index(":", listed[0].end_mark.index) + 1
    return rest[:colon] + " []" + rest[colon:]


def _root(text: str) -> MappingNode | None:
    parse(text)
    if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
        raise FileRefused("it has aliases (*name), which a small change could break: change it by hand")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        return None
    if not isinstance(root, MappingNode) or root.flow_style:
        raise FileRefused("it is not a list of keys, each on a line of its own")
    return root


def _pair(mapping: MappingNode | None, key: str) -> Pair | None:
    found = [pair for pair in mapping.value if pair[0].value == key] if mapping else []
    if len(found) > 1:
        raise FileRefused(f"{key!r} stands there more than once")
    return found[0] if found else None


def _items(listed: Pair, key: str) -> list[Node]:
    match listed[1]:
        case SequenceNode(value=items, flow_style=flow) if not (flow and items):
            return list(items)
        case ScalarNode(value=""):
            return []
    raise FileRefused(f"{key} is not a list with one item a line")


def _named(items: Sequence[Node], name: str) -> MappingNode | None:
    found = [item for item in items if isinstance(item, MappingNode) and _name(item) == name]
    if len(found) > 1:
        raise FileRefused(f"{name!r} stands there more than once")
    return found[0] if found else None


def _name(item: MappingNode) -> object:
    pair = _pair(item, "name")
    return pair[1].value if pair else None


def _with_first_item(text: str, listed: Pair, new: Mapping[str, JsonValue]) -> str:
    empty = listed[1]
    start = len(text[: empty.start_mark.index].rstrip(" "))
    text = text[:start] + text[empty.end_mark.index :]
    at = _line_end(text, start)
    indent = " " * (listed[0].start_mark.column + 2)
    return text[:at] + _newline(text) + _item(new, indent, _newline(text)).rstrip("\r\n") + text[at:]


def _with_item_after(text: str, last: Node, new: Mapping[str, JsonValue], indent: str) -> str:
    at = _line_end(text, _end(text, last))
    return text[:at] + _newline(text) + _item(new, indent, _newline(text)).rstrip("\r\n") + text[at:]


def _with_key(text: str, key: str, name: str, changed: str, value: JsonValue) -> str:
    item = _item_again(text, key, name)
    pair = _pair(item, changed)
    if pair is None:
        at = _line_end(text, _end(text, item))
        indent = " " * item.start_mark.column
        return f"{text[:at]}{_newline(text)}{indent}{changed}: {_flow(value)}{text[at:]}"
    start, end = pair[1].start_mark.index, _end(text, pair[1])
    if _loaded(text, item).get(changed) == value:
        return text
    space = "" if text[start - 1 : start].isspace() else " "
    return text[:start] + space + _flow(value) + text[end:]


def _without_key(text: str, key: str, name: str, dropped: str) -> str:
    item = _item_again(text, key, name)
    pair = _pair(item, dropped)
    if pair is None:
        return text
    if pair == item.value[0]:
        raise FileRefused(f"write name first in the item {name!r} of {key}")
    return text[: _line_start(text, pair[0].start_mark.index)] + text[_line_end(text, _end(text, pair[1])) + 1 :]


def _item_again(text: str, key: str, name: str) -> MappingNode:
    """Places have moved with the last change."""
    listed = _pair(_root(text), key)
    item = _named(_items(listed, key), name) if listed else None
    if item is None:
        raise FileRefused(f"the item {name!r} of {key} cannot be changed: change it by hand")
    return item


def _loaded(text: str, item: MappingNode) -> dict[str, JsonValue]:
    """What an item says; its lines are moved to the left margin first."""
    column = item.start_mark.column
    source = " " * column + text[item.start_mark.index : _end(text, item)]
    loaded = yaml.safe_load(source)
    return dict(loaded) if isinstance(loaded, dict) else {}


def _end(text: str, node: Node) -> int:
    """Where a node's last character is; the marks of blocks lie behind the blank lines that follow."""
    if isinstance(node, SequenceNode) and node.value and not node.flow_style:
        return _end(text, node.value[-1])
    if isinstance(node, MappingNode) and node.value and not node.flow_style:
        return _end(text, node.value[-1][1])
    start, end = node.start_mark.index, node.end_mark.index
    return start + len(text[start:end].rstrip())


def _item(values: Mapping[str, JsonValue], indent: str, newline: str) -> str:
    lines = [f"{key}: {_flow(value)}" for key, value in values.items()]
    return "".join(f"{indent}{'- ' if n == 0 else '  '}{line}{newline}" for n, line in enumerate(lines))


def _flow(value: JsonValue) -> str:
    """A value on one line: plain words as they are, the rest as JSON, which YAML understands."""
    match value:
        case str() if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
            return value
        case list():
            return f"[{', '.join(map(_flow, value))}]"
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {_flow(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def _line_end(text: str, at: int) -> int:
    """Before the line break, whichever it is."""
    end = text.find("\n", at)
    end = len(text) if end < 0 else end
    return end - 1 if text[end - 1 : end + 1] == "\r\n" else end


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
