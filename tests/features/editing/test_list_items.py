"""An item of ours joins a list in a client's file and leaves it again; everything else stays as it was."""

import pytest

from kimi_proxy.connect.client_files import ListItems, ListValue
from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.editing import jsonc

ITEM: JsonObject = {"matcher": "Bash", "hooks": [{"type": "http", "url": "http://x/ours"}]}
ITEMS = ListItems({("hooks", "After"): ITEM}, "/ours")
THEIRS = '{"matcher": "Edit", "hooks": []}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"a": 1}',
        '{\n  // mine\n  "hooks": {}\n}\n',
        '{"hooks": {"After": []}}',
        f'{{"hooks": {{"After": [{THEIRS}]}}}}',
        f'{{\n  "hooks": {{\n    "After": [\n      {THEIRS}, // why\n      {THEIRS}\n    ]\n  }},\n  "b": 2\n}}\n',
        f'{{\n\t"hooks": {{\n\t\t"After": [\n\t\t\t{THEIRS}\n\t\t],\n\t\t"Before": [1]\n\t}}\n}}\n',
    ],
)
def test_an_item_joins_at_the_end_and_leaves_without_a_trace(text: str):
    done = ITEMS.apply(text)
    found = jsonc.get(done, ("hooks", "After"))
    assert isinstance(found, list)
    assert found[-1] == ITEM
    assert ITEMS.apply(done) == done

    undone = ITEMS.revert(done, text)
    assert jsonc.load(undone) == jsonc.load(text)
    if "After" in text and THEIRS in text:
        assert undone == text


def test_an_older_item_of_ours_is_replaced_and_those_of_others_stay():
    older = '{"hooks": {"After": [{"matcher": "*", "hooks": [{"url": "http://y/ours"}]}, 1]}}'

    assert jsonc.load(ITEMS.apply(older)) == {"hooks": {"After": [1, ITEM]}}


@pytest.mark.parametrize("text", ['{"hooks": []}', '{"hooks": {"After": {}}}', '{"hooks": {"After": "x"}}', "[]"])
def test_a_file_that_says_something_else_there_is_refused(text: str):
    with pytest.raises(FileRefused):
        ITEMS.apply(text)


RULE = ListValue(("permissions", "allow"), "mcp__ours__tool")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"a": 1}',
        '{"permissions": {}}',
        '{"permissions": {"allow": []}}',
        '{"permissions": {"allow": ["mcp__ours__tools", "mcp__ours__"]}}',
        '{\n  "permissions": {\n    "allow": [\n      "Bash(ls:*)", // why\n      "Read"\n    ]\n  },\n  "b": 2\n}\n',
    ],
)
def test_a_value_joins_a_list_and_leaves_without_a_trace(text: str):
    done = RULE.apply(text)
    found = jsonc.get(done, RULE.path)

    assert isinstance(found, list) and found[-1] == RULE.value
    assert RULE.apply(done) == done
    assert jsonc.load(RULE.revert(done, text)) == jsonc.load(text)
    if "ls:*" in text:
        assert RULE.revert(done, text) == text


def test_a_value_that_was_there_before_stays():
    text = '{"permissions": {"allow": ["Read", "mcp__ours__tool"]}}'

    assert RULE.apply(text) == text
    assert RULE.revert(text, text) == text
