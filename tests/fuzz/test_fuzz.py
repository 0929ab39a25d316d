"""Parsers of what others send, with texts that were changed at random. `python -m tests.fuzz` goes on for longer."""

import pytest
from tests.fuzz.explore import explore, run, seeds
from tests.fuzz.targets import TARGETS
from tests.support.deep import IS_DEEP

RUNS = 300
DEEP_S = 60.0


@pytest.mark.parametrize("name", TARGETS)
def test_no_text_breaks_a_promise_of_its_parser(name: str) -> None:
    run(TARGETS[name], seeds(name), RUNS, seed=1)
    if IS_DEEP:
        explore(TARGETS[name], seeds(name), DEEP_S, seed=2)
