"""The marker that stands in the middle of a masked text."""

import json
from collections.abc import Callable

import pytest

from kimi_proxy.core.markers import MaskMarker, PruneMarker, quoted_id, read, read_mask, rewritten_id

MARKER = MaskMarker("msk_0123456789abcdef", 10_000, 2000, 1999)


def test_the_marker_keeps_its_known_text_and_ends_with_its_id():
    assert str(MARKER) == (
        "\n... [KIMI_PROXY_OBSERVATION_MASKED original_chars=10000 head=2000 tail=1999 id=msk_0123456789abcdef] ...\n"
    )


def test_what_was_written_can_be_read():
    assert read_mask(f"head{MARKER}tail") == MARKER


def test_a_marker_of_the_first_kind_had_no_id():
    marker = "[KIMI_PROXY_OBSERVATION_MASKED original_chars=10 head=2 tail=2]"

    assert read_mask(marker) == MaskMarker("", 10, 2, 2)
    assert quoted_id(marker) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain text",
        "[KIMI_PROXY_OBSERVATION_MASKED]",
        "[KIMI_PROXY_OBSERVATION_MASKED original_chars=x head=1 tail=1]",
        "[KIMI_PROXY_OBSERVATION_MASKED original_chars=1 head=1 tail=1 id=msk_short]",
        "⟦PRUNÉ: something else⟧",
        "[KIMI_PROXY_OBSERVATION_MASKED original_chars=" * 1000,
    ],
)
def test_a_text_that_only_resembles_a_marker_is_none(text: str):
    assert read_mask(text) is None
    assert quoted_id(text) is None


@pytest.mark.parametrize(
    "quote", [str, json.dumps, lambda text: json.dumps({"deep": json.dumps(text)}), lambda text: f"a\n{text}\nb"]
)
def test_markers_are_found_however_they_were_quoted(quote):
    pruned = PruneMarker("prn_0123456789abcdef", 3, 9, "hors sujet")

    assert quoted_id(quote(str(MARKER))) == "msk_0123456789abcdef"
    assert quoted_id(quote(str(pruned))) == "prn_0123456789abcdef"


@pytest.mark.parametrize(
    "alter",
    [
        str.upper,
        str.lower,
        lambda text: text.replace("=", " = ").replace(" ", "   "),
        lambda text: text.replace("[", "［").replace("]", "］").replace("⟦", "【").replace("⟧", "】"),
        lambda text: text.replace("[", "").replace("⟦", ""),
        lambda text: (
            text.replace("⟦", "&#x27E6;").replace("É", "&Eacute;").replace("=", "&equals;").replace(" ", "&nbsp;")
        ),
        lambda text: text.replace("=", "＝").replace("(", "（").replace("É", "E\u0301"),
        lambda text: f"{'prune_id= observation_masked ' * 1000}{text}",
    ],
)
def test_a_marker_that_a_model_wrote_from_memory_is_still_recognised(alter: Callable[[str], str]):
    pruned = PruneMarker("prn_0123456789abcdef", 3, 9, "hors sujet")

    assert rewritten_id(f"head {alter(str(MARKER))} tail") == "msk_0123456789abcdef"
    assert rewritten_id(f"head {alter(str(pruned))} tail") == "prn_0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        "call recover_text with prune_id=prn_0123456789abcdef",
        "the column prune_id and the word lignes 3-9",
        "KIMI_PROXY_OBSERVATION_MASKED is written between head and tail",
    ],
)
def test_a_text_about_markers_is_none(text: str):
    assert rewritten_id(text) is None


# Markers of pruned lines, as strangers spell them.


OURS = PruneMarker("prn_0123456789abcdef", 3, 9, "hors sujet")


def test_what_we_write_is_read_again():
    assert read(str(OURS)) == OURS


@pytest.mark.parametrize(
    "line",
    [
        "",
        "⟦PRUNÉ: prune_id=x lignes 3-9 (8) raison=r⟧",
        f"⟦PRUNÉ: prune_id=x lignes 1-{'9' * 5000} (1) raison=r⟧",
        f"⟦PRUNÉ: prune_id=x lignes {'1' * 5000}-{'1' * 5000} (1) raison=r⟧",
    ],
)
def test_what_counts_wrong_or_beyond_all_numbers_is_none(line: str):
    assert read(line) is None
