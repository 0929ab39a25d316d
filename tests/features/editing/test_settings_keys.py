"""Single settings are set and brought back; everything else in the file stays."""

import pytest

from kimi_proxy.connect.client_files import BOM, SettingsKeys
from kimi_proxy.core.errors import FileRefused
from kimi_proxy.features.editing import jsonc, toml

ENV = SettingsKeys(jsonc, {("env",): {"URL": "http://x", "OLD": None}})
TOP = SettingsKeys(toml, {(): {"url": "http://x"}})


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", '{\n  "env": {\n    "URL": "http://x"\n  }\n}\n'),
        ('{"a": 1}', '{"a": 1, "env": {"URL": "http://x"}}'),
        ('{\n  // mine\n  "env": {"A": "1"}\n}\n', '{\n  // mine\n  "env": {"A": "1", "URL": "http://x"}\n}\n'),
        (
            f'{BOM}{{"env": {{"URL": "http://y", "OLD": "1"}}}}',
            f'{BOM}{{"env": {{"URL": "http://x"}}}}',
        ),
    ],
)
def test_json_is_changed_in_place_and_back(text: str, after: str):
    assert ENV.apply(text) == after
    assert jsonc.load(ENV.revert(after, text).removeprefix(BOM)) == jsonc.load(text.removeprefix(BOM))


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", 'url = "http://x"\n'),
        ("# mine\n[a]\nb = 1\n", 'url = "http://x"\n\n# mine\n[a]\nb = 1\n'),
        ("model = 'm' # mine\n\n[a]\nb = 1\n", "model = 'm' # mine\nurl = \"http://x\"\n\n[a]\nb = 1\n"),
        ("url = 'http://y' # mine\n[a]\nurl = 2\n", 'url = "http://x" # mine\n[a]\nurl = 2\n'),
    ],
)
def test_the_beginning_of_a_toml_file_is_changed_and_back(text: str, after: str):
    assert TOP.apply(text) == after
    assert toml.load(TOP.revert(after, text)) == toml.load(text)


def test_what_the_user_changed_in_the_meantime_stays():
    after = ENV.apply('{"a": 1}').replace('"a": 1', '"a": 2')

    assert ENV.revert(after, '{"a": 1}') == '{"a": 2}'


@pytest.mark.parametrize("text", ['{"env": []}', '{"env": "x"}', '{"env": null}', "[]"])
def test_a_file_that_says_something_else_there_is_refused(text: str):
    with pytest.raises(FileRefused):
        ENV.apply(text)


def test_a_table_in_place_of_a_value_is_refused():
    with pytest.raises(FileRefused, match="has more than one value"):
        ENV.revert('{"env": {"URL": "http://x"}}', '{"env": {"URL": {"a": 1}}}')
