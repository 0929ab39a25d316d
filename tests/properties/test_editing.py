"""What holds for every configuration file that we may meet."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.config_files import ENTRIES, JSON, TOML, YAML, json_files, toml_files, yaml_files

from kimi_proxy.core.json import JsonObject
from kimi_proxy.features.editing import servers
from kimi_proxy.features.editing.servers import Format


def check(form: Format, text: str, entry: JsonObject) -> None:
    before = servers.entry(form, text)
    once = servers.with_entry(form, text, entry)

    assert servers.with_entry(form, once, entry) == once
    now = servers.entry(form, once)
    assert isinstance(now, dict)
    assert {key: now[key] for key in entry} == entry
    if isinstance(before, dict):
        dropped = servers.OVER_STDIO if "url" in entry else servers.OVER_HTTP
        assert {k: v for k, v in before.items() if k not in (*dropped, *entry)} == {
            k: v for k, v in now.items() if k not in entry
        }
    assert repr(form.others(once.removeprefix("\ufeff"))) == repr(form.others(text.removeprefix("\ufeff")))
    assert notes(once) == notes(text)
    gone = servers.without_entry(form, once)
    assert servers.entry(form, gone) is None
    assert repr(form.others(gone.removeprefix("\ufeff"))) == repr(form.others(text.removeprefix("\ufeff")))
    if before is None:
        assert notes(gone) == notes(text)
        assert is_within(text.replace("[]", ""), once)
        assert is_within(text.replace(",", ""), gone)
    assert ("\r\n" in once) == ("\r\n" in text) or "\n" not in text


def notes(text: str) -> list[str]:
    """The comments that these tests write."""
    return re.findall(r"note\d+", text)


def is_within(part: str, whole: str) -> bool:
    """Whether all of `part` but white space is still there, in its order."""
    characters = iter(whole)
    return all(character in characters for character in part if not character.isspace())


@given(json_files(), ENTRIES)
def test_any_json_keeps_all_it_says(text: str, entry: JsonObject):
    check(JSON, text, entry)


@given(toml_files(), ENTRIES)
def test_any_toml_keeps_all_it_says(text: str, entry: JsonObject):
    check(TOML, text, entry)


@settings(max_examples=settings().max_examples // 3)  # its parser is slow
@given(yaml_files(), ENTRIES)
def test_any_yaml_keeps_all_it_says(text: str, entry: JsonObject):
    check(YAML, text, entry)


@given(st.sampled_from(["", "\n", "  ", "// note1", "/* note1 */\n", "\ufeff"]), ENTRIES)
def test_an_empty_json_file_becomes_one(text: str, entry: JsonObject):
    once = servers.with_entry(JSON, text, entry)

    assert servers.entry(JSON, once) == entry
    assert notes(once) == notes(text)
    assert once.endswith("}\n")


@given(st.text(st.sampled_from("a #\n-"), max_size=20), st.booleans())
def test_a_block_in_any_text_comes_and_goes(text: str, windows: bool):
    text = text.replace("\n", "\r\n") if windows else text
    once = servers.put(text, "one\n\ntwo")

    assert servers.put(once, "one\n\ntwo") == once
    assert servers.put(servers.put(text, "other"), "one\n\ntwo") == once
    end = "\r\n" if "\r\n" in text else "\n"
    assert servers.remove(once) in (text, text + end, text.removesuffix(end))
