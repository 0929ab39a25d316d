"""Cases that ./test.sh --deep adds: of the same kind as one that always runs, and slow."""

import os

import pytest

IS_DEEP = "KIMI_PROXY_DEEP" in os.environ
deep = pytest.mark.skipif(not IS_DEEP, reason="one of its kind runs; the others with ./test.sh --deep")


def too(*values: object) -> object:
    """A case of `parametrize` for --deep."""
    return pytest.param(*values, marks=deep)
