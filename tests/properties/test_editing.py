"""What holds for every configuration file that we may meet."""

import re

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.config_files import ENTRIES, JSON, TOML, json_files, toml_files
from tests.support.deep import often

from kimi_proxy.connect.client_files import OVER_HTTP, OVER_STDIO, SharedFile, put_block, remove_block
from kimi_proxy.core.json import JsonObject


def check(form: SharedFile, text: str, entry: JsonObject) -> None:
    before = form.entry(text)
    once = form.with_entry(text, entry)

    assert form.with_entry(once, entry) == once
    now = form.entry(once)
    assert isinstance(now, dict)
    assert {key: now[key] for key in entry} == entry
    if isinstance(before, dict):
        dropped = OVER_STDIO if "url" in entry else OVER_HTTP
        assert {k: v for k, v in before.items() if k not in (*dropped, *entry)} == {
            k: v for k, v in now.items() if k not in entry
        }
    assert repr(form.others(once.removeprefix("\ufeff"))) == repr(form.others(text.removeprefix("\ufeff")))
    assert notes(once) == notes(text)
    gone = form.without_entry(once)
    assert form.entry(gone) is None
    assert repr(form.others(gone.removeprefix("\ufeff"))) == repr(form.others(text.removeprefix("\ufeff")))
    if before is None:
        assert notes(gone) == notes(text)
        assert is_within(text, once)
        assert is_within(text.replace(",", ""), gone)
    assert ("\r\n" in once) == ("\r\n" in text) or "\n" not in text


def notes(text: str) -> list[str]:
    """The comments that these tests write."""
    return re.findall(r"note\d+", text)


def is_within(part: str, whole: str) -> bool:
    """Whether all of `part` but white space is still there, in its order."""
    characters = iter(whole)
    return all(character in characters for character in part if not character.isspace())


@often
@given(json_files(), ENTRIES)
def test_any_json_keeps_all_it_says(text: str, entry: JsonObject):
    check(JSON, text, entry)


@often
@given(toml_files(), ENTRIES)
def test_any_toml_keeps_all_it_says(text: str, entry: JsonObject):
    check(TOML, text, entry)


@given(st.sampled_from(["", "\n", "  ", "// note1", "/* note1 */\n", "\ufeff"]), ENTRIES)
def test_an_empty_json_file_becomes_one(text: str, entry: JsonObject):
    once = JSON.with_entry(text, entry)

    assert JSON.entry(once) == entry
    assert notes(once) == notes(text)
    assert once.endswith("}\n")


@given(st.text(st.sampled_from("a #\n-"), max_size=20), st.booleans())
def test_a_block_in_any_text_comes_and_goes(text: str, windows: bool):
    text = text.replace("\n", "\r\n") if windows else text
    once = put_block(text, "one\n\ntwo")

    assert put_block(once, "one\n\ntwo") == once
    assert put_block(put_block(text, "other"), "one\n\ntwo") == once
    end = "\r\n" if "\r\n" in text else "\n"
    assert remove_block(once) in (text, text + end, text.removesuffix(end))
