from hypothesis import given
from hypothesis import strategies as st
from tests.support.texts import a_question

from kimi_proxy.core.config import PrunerSettings
from kimi_proxy.core.lines import SLICE_CHARS, decode_text, encode_text
from kimi_proxy.services.originals import fingerprint

texts = st.text(st.characters(exclude_categories=()))


def key(text: str = "text", goal: str = "goal", **settings: object) -> bytes:
    return fingerprint(a_question(text, goal), encode_text(text), PrunerSettings.model_validate(settings))


@given(texts)
def test_a_stored_text_reads_back_whatever_it_holds(text: str) -> None:
    assert decode_text(encode_text(text)) == text


def test_a_text_that_is_encoded_in_slices_is_encoded_as_a_whole() -> None:
    text = "é😀\ud800a" * SLICE_CHARS
    assert encode_text(text) == text.encode("utf-8", "surrogatepass")


def test_a_fingerprint_is_32_bytes_and_the_same_every_time() -> None:
    assert len(key()) == 32
    assert key() == key()


def test_what_belongs_to_the_goal_cannot_pass_for_text() -> None:
    assert key("ab", "c") != key("b", "ca") != key("", "cab")
    assert key("\ud800", "\ud800") != key("?", "\ud800")


def test_the_backend_is_part_of_the_question_with_all_that_changes_its_answers() -> None:
    keys = [
        key(),
        key(backend="deepinfra"),
        key(backend="deepinfra", deepinfra_max_docs=10),
        key(backend="deepinfra", deepinfra_endpoint_url="http://localhost/"),
    ]
    assert len(set(keys)) == 4


def test_settings_that_change_no_answer_are_no_part_of_the_question() -> None:
    assert key() == key(cache_ttl_s=5, deepinfra_max_docs=10, port=1)
    assert key(backend="deepinfra") == key(backend="deepinfra", deepinfra_timeout_ms=5)
