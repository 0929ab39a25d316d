"""What masking promises for every value."""

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.support.deep import often

from kimi_proxy.core.config.servers import MaskingSettings
from kimi_proxy.core.json import JsonValue
from kimi_proxy.core.markers import read_mask
from kimi_proxy.features.masking import apply, plan

ALPHABET = st.one_of(st.characters(), st.sampled_from('"\\{}[],:\n é\ud800'))
TEXTS = st.text(ALPHABET, max_size=30)
LONG = st.builds(lambda piece, times: piece * times, TEXTS, st.integers(0, 60))
SCALARS = st.none() | st.booleans() | st.integers() | TEXTS | LONG
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(TEXTS, inner, max_size=8),
    max_leaves=30,
)
QUOTED = st.builds(lambda tree, indent: json.dumps(tree, indent=indent), TREES, st.sampled_from([None, 1]))
VALUES = st.recursive(
    SCALARS | QUOTED | st.lists(TEXTS, min_size=20, max_size=60).map(json.dumps),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=12,
)
LIMITS = st.builds(
    MaskingSettings,
    max_chars=st.integers(1, 400),
    head_chars=st.integers(0, 200),
    tail_chars=st.integers(0, 200),
)


def name(number: int) -> str:
    return "msk_" + f"{number:016d}"


def mask(value: JsonValue, limits: MaskingSettings) -> tuple[JsonValue, dict[str, str]]:
    found = plan(value, limits)
    originals = {name(i): cut.text for i, cut in enumerate(found.cuts)}
    return apply(found, {cut.text: cut.render(name(i)) for i, cut in enumerate(found.cuts)}), originals


def shape(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "text" if isinstance(value, str) else value


def strings(value: JsonValue) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in strings(item)]


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@often
@given(VALUES, LIMITS)
def test_keys_order_and_everything_but_strings_survive(value: JsonValue, limits: MaskingSettings):
    masked, _ = mask(value, limits)

    assert json.dumps(shape(masked)) == json.dumps(shape(value))


@often
@given(VALUES, LIMITS)
def test_no_string_gets_longer_and_short_ones_are_the_same(value: JsonValue, limits: MaskingSettings):
    masked, _ = mask(value, limits)

    for before, after in zip(strings(value), strings(masked), strict=True):
        assert after is before or (len(before) > limits.max_chars and len(after) < len(before))


@often
@given(VALUES, LIMITS)
def test_a_text_that_is_json_stays_json(value: JsonValue, limits: MaskingSettings):
    masked, _ = mask(value, limits)

    for before, after in zip(strings(value), strings(masked), strict=True):
        if before[:1] in "[{" and is_json(before):
            assert is_json(after)


@often
@given(VALUES, LIMITS)
def test_masking_what_is_masked_changes_nothing(value: JsonValue, limits: MaskingSettings):
    masked, _ = mask(value, limits)

    assert plan(masked, limits).cuts == ()


@often
@given(VALUES, LIMITS)
def test_the_same_value_is_masked_the_same_way(value: JsonValue, limits: MaskingSettings):
    assert mask(value, limits) == mask(value, limits)


@often
@given(VALUES, LIMITS)
def test_every_marker_leads_back_to_exactly_what_stood_there(value: JsonValue, limits: MaskingSettings):
    masked, originals = mask(value, limits)

    for before, after in zip(strings(value), strings(masked), strict=True):
        assert _recovered(after, originals) == before or _same_json(after, before, originals)


def _recovered(text: str, originals: dict[str, str]) -> str:
    marker = read_mask(text)
    original = originals.get(marker.mask_id) if marker else None
    if marker is None or original is None:
        return text
    assert len(original) == marker.original_chars
    return original


def _same_json(after: str, before: str, originals: dict[str, str]) -> bool:
    """A JSON text with masked strings inside: each of them recovers on its own."""
    return is_json(before) and _mended(json.loads(after), originals) == json.loads(before)


def _mended(value: JsonValue, originals: dict[str, str]) -> JsonValue:
    if isinstance(value, str):
        mended = _recovered(value, originals)
        return json.loads(json.dumps(mended)) if mended != value or not is_json(value) else _inner(value, originals)
    if isinstance(value, dict):
        return {key: _mended(item, originals) for key, item in value.items()}
    return [_mended(item, originals) for item in value] if isinstance(value, list) else value


def _inner(text: str, originals: dict[str, str]) -> str:
    mended = _mended(json.loads(text), originals)
    return text if mended == json.loads(text) else json.dumps(mended)
