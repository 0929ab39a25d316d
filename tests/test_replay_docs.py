"""The figures in docs/replay.md are those that the command prints."""

import os

import pytest
from tests.recordings.page import figures, written


@pytest.mark.skipif(os.name == "nt", reason="paths are told otherwise there")
def test_the_figures_in_the_docs_come_from_the_command():
    assert written() == figures(), "write them anew: python -m tests.recordings.page"
