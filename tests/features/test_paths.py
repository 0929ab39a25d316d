"""Which arguments of a tool call name files."""

import pytest

from kimi_proxy.core.json import JsonValue
from kimi_proxy.features.gateway import is_inside, path_arguments


def found(arguments: JsonValue) -> set[str]:
    return {argument.path for argument in path_arguments(arguments)}


@pytest.mark.parametrize(
    "name", ["path", "paths", "file_path", "filePath", "FILE", "root_path", "dir", "target_dir", "cwd", "uri", "source"]
)
def test_by_its_name_any_string_is_a_path(name: str):
    assert found({name: "notes/a.txt"}) == {"notes/a.txt"}


@pytest.mark.parametrize("value", ["/etc/passwd", "~/.ssh", "../up", "./up", "file:/etc", "a/../../b", "a/..", "C:\\x"])
def test_by_its_look_a_string_of_another_name_is_a_path_too(value: str):
    assert len(found({"input": value})) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"content": "/etc/passwd"},
        {"pattern": "/api/v1"},
        {"edits": [{"oldText": "/a", "newText": "../b"}]},
        {"input": "// a comment"},
        {"input": "and/or"},
        {"input": "/a\nb"},
        {"url": "https://example.org/a/b"},
        {"uri": "https://example.org/a/../b"},
        {"count": 3, "flag": None},
    ],
)
def test_texts_numbers_and_addresses_are_no_paths(arguments: JsonValue):
    assert found(arguments) == set()


def test_a_path_may_be_the_name_of_a_member():
    assert found({"files": {"../../.bashrc": "alias ls=rm", "notes": "x"}}) == {"../../.bashrc"}


def test_lists_and_objects_are_looked_through():
    assert found({"paths": ["a", {"file": "b"}], "options": {"x": [{"root": "c"}]}}) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///etc/passwd", "/etc/passwd"),
        ("file:///etc/%70asswd", "/etc/passwd"),
        ("FILE:/etc", "/etc"),
        ("file://localhost/etc", "/etc"),
        ("file://host/share", "//host/share"),
        ("file://[", "file://["),
    ],
)
def test_a_file_uri_is_its_path(uri: str, path: str):
    assert found({"uri": uri}) == {path}


@pytest.mark.parametrize(
    ("path", "inside"),
    [("/a/root", True), ("/a/root/b", True), ("/a/root-evil", False), ("/a", False), ("/", False)],
)
def test_inside_is_decided_part_by_part(path: str, inside: bool):
    assert is_inside(path, "/a/root") is inside
