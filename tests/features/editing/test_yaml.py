"""YAML, changed where it has to be and nowhere else."""

import pytest

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.features.editing import yaml

ITEM = "  - name: mine\n    url: http://x/mcp\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1", f"a: 1\nservers:\n{ITEM}"),
        ("servers:\n", f"servers:\n{ITEM}"),
        ("servers: [] # none\nb: 1\n", f"servers: # none\n{ITEM}b: 1\n"),
        (
            "servers:\n- name: a\n  x: |\n    y\n\n# end\n",
            "servers:\n- name: a\n  x: |\n    y\n- name: mine\n  url: http://x/mcp\n\n# end\n",
        ),
        ("servers:\r\n  - name: a\r\n", "servers:\r\n  - name: a\r\n  - name: mine\r\n    url: http://x/mcp\r\n"),
        (
            "servers:\n  - name: mine # me\n    url: old # was\n    on: true\n",
            "servers:\n  - name: mine # me\n    url: http://x/mcp # was\n    on: true\n",
        ),
        ("servers:\n  - name: mine\n    url:\n  - name: b\n", f"servers:\n{ITEM}  - name: b\n"),
    ],
)
def test_an_item_is_put_where_it_belongs(before: str, after: str):
    assert yaml.put(before, "servers", "mine", {"url": "http://x/mcp"}) == after


def test_keys_of_another_transport_are_dropped():
    before = (
        "servers:\n  - name: mine\n    command: x\n    args:\n      - a # one\n      - b\n    # kept\n    on: true\n"
    )

    assert yaml.put(before, "servers", "mine", {"url": "x.y"}, ("command", "args")) == (
        "servers:\n  - name: mine\n    # kept\n    on: true\n    url: x.y\n"
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("kimi-proxy", "kimi-proxy"),
        ("--stdio", '"--stdio"'),
        ("yes", '"yes"'),
        ("C:\\x y", '"C:\\\\x y"'),
        ("a: b", '"a: b"'),
        (["tools", "--stdio"], '[tools, "--stdio"]'),
        ("", '""'),
        (True, "true"),
    ],
)
def test_values_mean_what_they_say(value: str, written: str):
    text = yaml.put("", "servers", "mine", {"v": value})

    assert text == f"servers:\n  - name: mine\n    v: {written}\n"
    assert yaml.parse(text) == {"servers": [{"name": "mine", "v": value}]}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1\nservers:\n  - name: mine\n    url: x\n", "a: 1\nservers: []\n"),
        ("servers: # mine\n  - name: mine\n", "servers: [] # mine\n"),
        (
            "servers:\n  - name: a\n  # about mine\n  - name: mine\n    args:\n      - x\n\nb: 1\n",
            "servers:\n  - name: a\n  # about mine\n\nb: 1\n",
        ),
        ("servers:\n  -\n    name: mine\n  - name: b\n", "servers:\n  - name: b\n"),
        ("a: 1\n", "a: 1\n"),
    ],
)
def test_an_item_is_removed_and_comments_stay(before: str, after: str):
    assert yaml.remove(before, "servers", "mine") == after


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: b: c",
        "\tx: 1",
        "- a\n",
        "{servers: []}",
        "servers: {a: 1}",
        "servers: [{name: a}]",
        "servers: text",
        "servers:\n  - {name: mine, on: true}\n",
        "a: &x 1\nb: *x\n",
        "servers: []\nservers: []\n",
        "servers:\n  - name: mine\n  - name: mine\n",
        "a: 1\n---\nb: 1\n",
    ],
)
def test_what_cannot_be_changed_safely_is_refused(text: str):
    with pytest.raises(FileRefused):
        yaml.put(text, "servers", "mine", {"url": "x"})
