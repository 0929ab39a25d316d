import time

import pytest

from kimi_proxy.core.markers import NO_PRUNE_BEGIN, NO_PRUNE_END
from kimi_proxy.core.prune import SOURCE_TYPES, SourceType
from kimi_proxy.features.pruning.engine import outline


def forbidden(lines: list[str], source_type: SourceType = "docs") -> list[int]:
    return [row for row, why in enumerate(outline(lines, source_type).protected) if why == "no_prune"]


@pytest.mark.parametrize("source_type", SOURCE_TYPES)
def test_what_stands_between_the_directives_stays_with_them(source_type: SourceType) -> None:
    lines = ["a", f"  {NO_PRUNE_BEGIN}", "b", "", f"{NO_PRUNE_END}\r", "c"]
    assert forbidden(lines, source_type) == [1, 2, 3, 4]


def test_a_begin_without_an_end_protects_to_the_end_of_the_text() -> None:
    assert forbidden(["a", NO_PRUNE_BEGIN, "b", "c"]) == [1, 2, 3]


def test_an_end_without_a_begin_protects_itself_alone() -> None:
    assert forbidden(["a", NO_PRUNE_END, "b"]) == [1]


def test_directives_nest() -> None:
    lines = [NO_PRUNE_BEGIN, NO_PRUNE_BEGIN, "a", NO_PRUNE_END, "b", NO_PRUNE_END, "c"]
    assert forbidden(lines) == [0, 1, 2, 3, 4, 5]


def test_a_directive_inside_a_line_is_only_text() -> None:
    assert forbidden([f"say {NO_PRUNE_BEGIN} to keep", "b"]) == []


def test_a_hundred_thousand_pairs_take_linear_time() -> None:
    def seconds(pairs: int) -> float:
        lines = [NO_PRUNE_BEGIN, NO_PRUNE_END] * pairs
        start = time.process_time()
        assert len(forbidden(lines)) == 2 * pairs
        return time.process_time() - start

    assert seconds(100_000) < 40 * max(seconds(10_000), 0.01)
