"""What every test may lean on."""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings
from tests.support.forks import warm_workers
from tests.support.processes import Children, children_of

gc.disable()  # until all is collected: what collecting makes stays to the end

# The quick examples are the same on every run, so that a change is judged by what it changed; deep ones differ.
settings.register_profile(
    "quick", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
settings.register_profile("deep", max_examples=2_500, deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("mutants", parent=settings.get_profile("quick"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Folders and files of tests that take long. Each group shares servers, browsers or installed programs.
LONG = (
    ("clients",),
    ("browser",),
    ("test_start.py", "test_wheel.py", "test_replay_docs.py", "faults"),
    ("cli",),
)


def pytest_configure(config: pytest.Config) -> None:
    """Load once, beside the collecting of the workers, what several hundred commands and servers need."""
    if getattr(config.option, "numprocesses", None) and "KIMI_PROXY_DEEP" not in os.environ:
        warm_workers()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each worker begin with long tests: at the end all others would wait for the last of them.

    Workers take equal parts of the list from its start, and then what others have not begun, from the end of theirs.
    """
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    groups = [[item for item in items if _place(item) in places] for places in LONG]
    short = [item for item in items if not any(_place(item) in places for places in LONG)]
    size = -(-len(items) // workers)
    if workers > 1:
        items.clear()
        for at in range(workers):
            own = [item for group in groups[at::workers] for item in group]
            items += own + short[: max(0, size - len(own))]
            short = short[max(0, size - len(own)) :]
        items += short


def _place(item: pytest.Item) -> str:
    return item.nodeid.split("/", 2)[1].partition("::")[0]


def pytest_collection_finish() -> None:
    """Leave what collecting has made out of every garbage collection from here on: it stays to the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def my_children() -> Children:
    """The children that this test has started: what other tests keep running beside it does not count."""
    others = set(children_of(os.getpid()))
    return lambda: [child for child in children_of(os.getpid()) if child not in others]
