"""What the tests of serving share with others."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cli.conftest import Cli
from tests.support.forks import Fork

LISTENS = re.compile(rb"the (pruner|proxy|metrics port) listens on (http://\S+)")


@contextmanager
def serving(
    cli: Cli, *args: str, env: dict[str, str] | None = None, name: str = "pruner"
) -> Iterator[tuple[Fork, str]]:
    """A started server, and the address that it told."""
    with cli.started(*args, env=env) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if (found := LISTENS.search(line)) and found[1].decode() == name:
                yield process, found[2].decode()
                return
        raise AssertionError("it ended before it listened")
