"""A server that many tests share, because none of them changes it."""

from collections.abc import Iterator

import pytest
from tests.support.api import world


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    with world.listening(world.app()) as port:
        yield port
