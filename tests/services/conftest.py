"""What tests of services lean on."""

import os

import pytest
from tests.support.processes import Children, children_of


@pytest.fixture
def my_children() -> Children:
    """The children that this test has started: what other tests keep running beside it does not count."""
    others = set(children_of(os.getpid()))
    return lambda: [child for child in children_of(os.getpid()) if child not in others]
