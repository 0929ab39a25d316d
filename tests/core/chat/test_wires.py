"""Only `core/chat/wires` knows which wire format a request has; the rest of the code asks the format itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kimi_proxy
from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.wires import BY_NAME, BY_PATH, COUNT_PATHS, wire_of_client

SRC = Path(kimi_proxy.__file__).parent
WIRES = "kimi_proxy.core.chat.wires"
MODULES = {f"{WIRES}.{path.stem}" for path in (SRC / "core/chat/wires").glob("*.py")}
SHARED = {f"{WIRES}.{name}" for name in ("__init__", "protocol", "recall", "calls")}

# Where the code branches on the wire format all the same, and why.
ALLOWED = {
    "core/config/providers.py": "a setting names the formats that are translated",
    "addons/translation/translations.py": "the table of translations, by the format that they translate",
    "addons/translation/anthropic_to_chat.py": "it knows both formats: that is its subject",
    "addons/translation/response_tools.py": "it knows both formats: that is its subject",
    "addons/translation/responses_to_chat.py": "it knows both formats: that is its subject",
    "features/completions.py": "it writes and reads the one format that all translations lead to",
    "lab/demo.py": "it plays a client, the other end of what we read",
    "lab/scripted_provider.py": "it plays a provider, the other end of what we write",
}


def branches(source: str) -> Iterator[int]:
    """The lines that compare with a wire format, look something up by one, or reach for the class of one."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Compare():
                is_branch = any(_names_one(each) for each in (node.left, *node.comparators))
            case ast.MatchValue() | ast.MatchClass():
                is_branch = _names_one(node)
            case ast.Dict():
                is_branch = any(_names_one(key) for key in node.keys if key is not None)
            case ast.Subscript():
                is_branch = _names_one(node.slice)
            case ast.ImportFrom():
                is_branch = node.module in MODULES - SHARED
            case _:
                continue
        if is_branch:
            yield node.lineno


def _names_one(node: ast.AST) -> bool:
    """Whether `Wire.CHAT` and the like, or the name of a wire format, is in there."""
    return any(
        (isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "Wire")
        or (isinstance(each, ast.Attribute) and each.attr == "name" and ast.unparse(each.value).endswith("format"))
        for each in ast.walk(node)
    )


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("if wire is Wire.CHAT: pass", 1),
        ("x = request.wire in (Wire.CHAT, Wire.MESSAGES)", 1),
        ("x = {Wire.CHAT: 1, Wire.MESSAGES: 2}", 1),
        ("x = TABLE[Wire.CHAT]", 1),
        ("match wire:\n  case Wire.CHAT: pass\n  case _: pass", 1),
        ("if request.wire.format.name == 'chat': pass", 1),
        ("from kimi_proxy.core.chat.wires.openai_chat import OpenAiChat", 1),
        ("from kimi_proxy.core.chat.wires.protocol import Usage", 0),
        ("x = [wire.format.paths for wire in Wire]", 0),
        ("x = Conversation('a', Wire.CHAT)", 0),
    ],
)
def test_a_branch_on_the_wire_format_is_found(source: str, count: int):
    assert len(list(branches(source))) == count


def test_nothing_outside_of_the_wires_branches_on_the_wire_format():
    modules = {str(path.relative_to(SRC)): path for path in SRC.rglob("*.py")}
    found = {
        name: lines
        for name, path in modules.items()
        if not name.startswith("core/chat/wires/") and (lines := list(branches(path.read_text("utf-8"))))
    }

    assert found.keys() == ALLOWED.keys(), found


def test_every_wire_format_has_a_name_and_paths_of_its_own():
    assert list(BY_NAME.values()) == list(Wire)
    assert len(BY_PATH) == sum(len(wire.format.paths) for wire in Wire) + len(COUNT_PATHS)
    assert all(wire.format.provider_types for wire in Wire)


@pytest.mark.parametrize(
    ("headers", "wire"), [({"anthropic-version": "2023-06-01"}, Wire.MESSAGES), ({"authorization": "x"}, Wire.CHAT)]
)
def test_a_client_is_known_by_its_headers(headers: dict[str, str], wire: Wire):
    assert wire_of_client(headers) is wire
