import zlib
from hashlib import sha256

import pytest

from kimi_proxy.features.pruning.model import KIND, ODDS_STEPS, Forest, ModelRefused, Tree, read, write

STUMP = Tree(signal=[0], limit=[10], left=[-1], right=[-2], means=[0], leaves=[-5, 5])
FORESTS = {"code": Forest(["line"], [STUMP], [0] * ODDS_STEPS)}


def packed(content: bytes) -> bytes:
    body = zlib.compress(content)
    return KIND + sha256(body).hexdigest().encode() + b"\n" + body


def test_what_is_written_is_read_and_written_again_in_the_same_bytes() -> None:
    raw = write(FORESTS)

    assert read(raw) == FORESTS
    assert write(read(raw)) == raw


def test_any_flipped_byte_is_refused() -> None:
    raw = write(FORESTS)
    for at in range(len(raw)):
        damaged = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        with pytest.raises(ModelRefused):
            read(damaged)


def test_a_file_cut_short_is_refused() -> None:
    raw = write(FORESTS)

    for end in (0, 1, len(KIND), len(raw) - 1):
        with pytest.raises(ModelRefused):
            read(raw[:end])


def test_a_sum_that_matches_does_not_make_nonsense_a_model() -> None:
    for content in (b"", b"[]", b'{"code": 1}', b'{"code": {"signals": [], "trees": [], "odds": [1]}}'):
        with pytest.raises(ModelRefused):
            read(packed(content))


@pytest.mark.parametrize(
    "tree",
    [
        Tree(signal=[1], limit=[10], left=[-1], right=[-2], means=[0], leaves=[-5, 5]),
        Tree(signal=[0], limit=[10], left=[0], right=[-1], means=[0], leaves=[-5, 5]),
        Tree(signal=[0], limit=[10], left=[-1], right=[-3], means=[0], leaves=[-5, 5]),
        Tree(signal=[0], limit=[], left=[-1], right=[-2], means=[0], leaves=[-5, 5]),
        Tree(signal=[0] * 40, limit=[1] * 40, left=[1] * 40, right=[-1] * 40, means=[0] * 40, leaves=[0] * 41),
        Tree(signal=[], limit=[], left=[], right=[], means=[], leaves=[1]),
    ],
    ids=["unknown signal", "circle", "no such leaf", "ragged", "too many leaves", "no node"],
)
def test_a_tree_that_cannot_be_walked_is_refused(tree: Tree) -> None:
    with pytest.raises(ModelRefused):
        read(write({"code": Forest(["line"], [tree], [0] * ODDS_STEPS)}))
