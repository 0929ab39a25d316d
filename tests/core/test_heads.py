"""What two texts begin with alike is found by halving."""

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core.lines import common_head


@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_it_is_as_long_as_a_loop_finds_it(one: str, other: str):
    plain = next((at for at, (x, y) in enumerate(zip(one, other, strict=False)) if x != y), min(len(one), len(other)))

    assert common_head(one, other) == plain
