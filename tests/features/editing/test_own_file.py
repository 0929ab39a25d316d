"""A YAML file that holds nothing but our server."""

import pytest

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.editing.yaml import OwnYamlFile

FILE = OwnYamlFile("mine")
HEAD = "name: mine\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: mine\n"
HTTP: JsonObject = {"type": "streamable-http", "url": "http://x/mcp"}
STDIO: JsonObject = {"type": "stdio", "command": "/opt/kimi proxy", "args": ["tools", "--stdio"]}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("kimi-proxy", "kimi-proxy"),
        ("http://127.0.0.1:8006/mcp", "http://127.0.0.1:8006/mcp"),
        ("--stdio", '"--stdio"'),
        ("yes", '"yes"'),
        ("C:\\x y", '"C:\\\\x y"'),
        ("a: b", '"a: b"'),
        ("/home/é 😀/x", '"/home/é 😀/x"'),
        (["tools", "--stdio"], '[tools, "--stdio"]'),
        ("", '""'),
    ],
)
def test_values_are_written_as_yaml_reads_them(value: str, written: str):
    assert FILE.with_entry("", {"command": value}) == f"{HEAD}    command: {written}\n"


def test_our_file_is_written_whole_each_time():
    once = FILE.with_entry("", STDIO)

    assert FILE.with_entry(once, STDIO) == once
    assert FILE.with_entry(once, HTTP) == f"{HEAD}    type: streamable-http\n    url: http://x/mcp\n"
    assert FILE.with_entry(FILE.with_entry(once, HTTP), STDIO) == once


def test_our_file_is_undone_even_if_a_value_was_edited():
    edited = FILE.with_entry("", STDIO).replace("/opt/kimi proxy", "/home/me/kimi-proxy")

    assert FILE.restore(edited, "") == ""


@pytest.mark.parametrize(
    "more", ["    env: {A: 1}\n", "  - name: other\n    url: y\n", "# a comment\n", "last: 1\n", "\r\n"]
)
def test_a_file_that_holds_more_is_refused(more: str):
    text = FILE.with_entry("", HTTP) + more

    with pytest.raises(FileRefused, match="more than our entry"):
        FILE.with_entry(text, STDIO)
    with pytest.raises(FileRefused, match="more than our entry"):
        FILE.restore(text, "")


def test_a_variable_of_ours_is_rewritten_and_undone():
    file = OwnYamlFile("mine", "FILE_PATH")
    written = file.with_entry("", {**STDIO, "env": {"FILE_PATH": 'C:\\"x"\\y'}})

    assert file.with_entry(written, {**STDIO, "env": {"FILE_PATH": "/z"}}).endswith('    env: {"FILE_PATH": "/z"}\n')
    assert file.restore(written, "") == ""


@pytest.mark.parametrize(
    "env", ['{"TOKEN": "x"}', '{"FILE_PATH": "/z", "TOKEN": "x"}', '{"FILE_PATH": "/z"} # mine', "{}"]
)
def test_a_variable_that_the_user_added_is_never_overwritten(env: str):
    file = OwnYamlFile("mine", "FILE_PATH")
    text = file.with_entry("", STDIO) + f"    env: {env}\n"

    with pytest.raises(FileRefused, match="more than our entry"):
        file.with_entry(text, STDIO)
    with pytest.raises(FileRefused, match="more than our entry"):
        file.restore(text, "")
