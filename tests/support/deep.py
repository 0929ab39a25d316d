"""Cases that ./test.sh --deep adds: slow ones, nearly all of the same kind as one that always runs."""

import os
from importlib.util import find_spec

import pytest
from hypothesis import settings

IS_DEEP = "KIMI_PROXY_DEEP" in os.environ
often = settings(max_examples=5_000 if IS_DEEP else settings.default.max_examples)  # for what is promised


def deep(why: str) -> pytest.MarkDecorator:
    """Mark a test that runs only with --deep, and say why in one line."""
    if not isinstance(why, str):  # `@deep` alone would take the test away without a word
        raise TypeError('say why: @deep("it takes a minute")')
    return pytest.mark.skipif(not IS_DEEP, reason=f"only with ./test.sh --deep: {why}")


def places(length: int, every: int = 5) -> range:
    """Return where to cut a text of some length: everywhere in a deep run, else at every `every`th place."""
    return range(0, length + 1, 1 if IS_DEEP else every)


def too(*values: object) -> object:
    """A case of `parametrize` for --deep, beside others of its test that always run."""
    return pytest.param(*values, marks=deep("other cases of this test always run"))


# uvloop is what runs where it is to be had; the others' own loop is tried there in a deep run.
LOOPS = (
    pytest.param(False, id="asyncio", marks=[deep("uvloop is what runs here")] if find_spec("uvloop") else []),
    pytest.param(True, id="uvloop"),
)
