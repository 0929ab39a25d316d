"""The figures in docs/replay.md are those that the command prints."""

import os

import pytest
from tests.recordings.page import NAMES, figures, written


@pytest.mark.skipif(os.name == "nt", reason="paths are written otherwise there")
@pytest.mark.parametrize("name", NAMES)
def test_the_figures_in_the_docs_come_from_the_command(name: str):
    assert figures(name) in written(), "write them anew: python -m tests.recordings.page"


def test_the_docs_show_every_recording():
    assert [written().count(f"replay tests/recordings/{name}.jsonl\n") for name in NAMES] == [1] * len(NAMES)
