"""JSON with comments, changed where it has to be and nowhere else."""

import pytest
from tests.support.deep import deep

from kimi_proxy.core.errors import FileRefused
from kimi_proxy.features.editing import jsonc


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "a": {\n    "b": 1\n  }\n}\n'),
        ("{}", '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{"x":2}', '{"x":2,"a":{"b":1}}'),
        ('{"x": 2}\n', '{"x": 2, "a": {"b": 1}}\n'),
        ('{"a":{}}', '{"a":{"b":1}}'),
        ('{\n\t"x": 2\n}\n', '{\n\t"x": 2,\n\t"a": {\n\t\t"b": 1\n\t}\n}\n'),
        ('{\r\n    "x": 2\r\n}', '{\r\n    "x": 2,\r\n    "a": {\r\n        "b": 1\r\n    }\r\n}'),
        ('{\n  "x": 2 // two\n}', '{\n  "x": 2, // two\n  "a": {\n    "b": 1\n  }\n}'),
        ('{\n  "x": 2, // two\n}', '{\n  "x": 2, // two\n  "a": {\n    "b": 1\n  },\n}'),
        ('{\n  "a": { /* none yet */ }\n}', '{\n  "a": { /* none yet */\n    "b": 1\n  }\n}'),
        ('{\n  "a": {\n    "c": "}"\n  }\n}', '{\n  "a": {\n    "c": "}",\n    "b": 1\n  }\n}'),
        ('{"a": {"b": [0, 0]}, "x": 2}', '{"a": {"b": 1}, "x": 2}'),
    ],
)
def test_a_member_is_put_where_it_belongs_in_the_style_of_its_neighbours(before: str, after: str):
    assert jsonc.put(before, ("a", "b"), 1) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"a": 1, "b": 2}', '{"a": 1}'),
        ('{"b": 2, "a": 1}', '{"a": 1}'),
        ('{"b": 2}', "{}"),
        ('{"b": 2, }', "{}"),
        ('{ /* c */ "b": 2}', "{ /* c */ }"),
        ('{\n  "a": 1,\n  "b": {\n    "x": 2\n  }\n}\n', '{\n  "a": 1\n}\n'),
        ('{\n  "b": 2,\n  "a": 1\n}', '{\n  "a": 1\n}'),
        ('{\n  "a": 1, // one\n  "b": 2\n}', '{\n  "a": 1 // one\n}'),
        ('{\n  "a": 1,\n  "b": 2, // two\n}', '{\n  "a": 1,\n  // two\n}'),
        ('{\n  // about a\n  "a": 1,\n  // about b\n  "b": 2\n}', '{\n  // about a\n  "a": 1\n  // about b\n}'),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_member_is_removed_and_comments_stay(before: str, after: str):
    assert jsonc.remove(before, ("b",)) == after


def test_members_that_replace_all_others_stand_as_those_did():
    merged = jsonc.merge('{"a":{\r\n    "url": 1\r\n}}', ("a",), {"command": 2}, ["url"])

    assert merged == '{"a":{\r\n    "command": 2\r\n}}'


@pytest.mark.parametrize(
    "text",
    ["{", "[1", '{"a" 1}', '{"a": 1 "b": 2}', "{'a': 1}", '{"a": NaN}', '{"a": 01}', "{} {}", '{"a": "\\x"}', "/* {}"],
)
def test_what_is_not_json_is_refused_with_its_line(text: str):
    with pytest.raises(FileRefused, match="line 3 is not JSON"):
        jsonc.put(f"\n\n{text}", ("a",), 1)


def test_what_is_nested_too_deep_is_refused():
    with pytest.raises(FileRefused, match="nested deeper"):
        jsonc.parse("[" * 100_000)


@pytest.mark.parametrize("text", ["[]", "1", '{"a": []}', '{"a": "text"}'])
def test_what_has_no_place_for_a_member_is_refused(text: str):
    with pytest.raises(FileRefused, match="is not an object"):
        jsonc.put(text, ("a", "b"), 1)


def test_a_key_that_stands_there_twice_is_refused():
    with pytest.raises(FileRefused, match="more than once"):
        jsonc.put('{"a": {}, "a": {}}', ("a", "b"), 1)


@deep("it measures time, which needs a quiet machine")
def test_a_file_of_megabytes_takes_a_moment():
    text = '{\n  "history": [' + ",\n".join(f'{{"n": {n}, "text": "{"x" * 80}"}}' for n in range(20_000)) + "]\n}\n"

    assert jsonc.get(jsonc.put(text, ("a", "b"), 1), ("a",)) == {"b": 1}
