"""Markers of pruned lines, as strangers spell them."""

import pytest

from kimi_proxy.core.markers import PruneMarker, read

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
