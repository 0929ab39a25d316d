"""What is saved on long outputs, and that nothing of it is what somebody needs."""

import json

import pytest
from tests.support import outputs
from tests.support.outputs import Printed

from kimi_proxy.core.prune import Origin
from kimi_proxy.features.sanitizer.shorten import ShortenedText, Task, shorten


def shortened(printed: Printed, is_unread: bool = True) -> ShortenedText:
    return shorten(Task(printed.text, printed.goal, Origin(), is_unread, 1000, 200, b"seed"))


@pytest.mark.parametrize("is_unread", [True, False], ids=["unread", "read"])
@pytest.mark.parametrize(
    ("printed", "least"),
    [
        (outputs.pytest_log(), 0.95),
        (outputs.build_log(), 0.90),
        (outputs.source_file(), 0.40),
        (outputs.numbered(outputs.source_file()), 0.40),
        (outputs.records(), 0.50),
        (outputs.records(indent=2), 0.50),
        (outputs.search_hits(), 0.30),
    ],
    ids=["pytest", "build", "source", "numbered source", "json", "pretty json", "ripgrep"],
)
def test_much_goes_and_the_needles_stay(printed: Printed, least: float, is_unread: bool):
    done = shortened(printed, is_unread=is_unread)

    assert 1 - done.tokens_after / done.tokens_before >= least
    assert [needle for needle in printed.needles if needle not in done.shown] == []


@pytest.mark.parametrize("seed", range(5))
def test_the_needles_stay_wherever_they_are(seed: int):
    for printed in (outputs.pytest_log(1000, seed), outputs.build_log(600, seed), outputs.records(300, seed=seed)):
        done = shortened(printed)
        assert [needle for needle in printed.needles if needle not in done.shown] == []


@pytest.mark.parametrize("indent", [None, 2])
def test_json_stays_json_and_kept_records_stay_as_they_were(indent: int | None):
    printed = outputs.records(indent=indent)
    before, after = json.loads(printed.text), json.loads(shortened(printed).shown)

    kept = [record for record in after if isinstance(record, dict)]
    assert all(record in before for record in kept)
    assert any("pool drained" in record.get("error", "") for record in kept)


def test_hits_stay_exactly_as_they_were():
    printed = outputs.search_hits()
    before = set(printed.text.split("\n"))

    assert [line for line in shortened(printed).shown.split("\n") if line not in before and "⟦PRUNÉ" not in line] == []
