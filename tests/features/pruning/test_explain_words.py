"""What is said of a line in English has its words in French, for the dashboard."""

import re
from pathlib import Path

from kimi_proxy.features.pruning import explain

WORDS = Path(explain.__file__).parents[2] / "dashboard" / "words" / "why.js"
SAID = {
    *explain._PROTECTED.values(),
    *explain._SIGNALS.values(),
    "nothing speaks of the goal",
    "fills a gap that its marker would cost more than",
}


def test_every_reason_has_its_french_words():
    known = re.findall(r'^  (?:"([^"]+)"|(\w+)): "', WORDS.read_text("utf-8"), re.M)

    assert SAID - {quoted or bare for quoted, bare in known} == set()


def test_no_words_are_left_of_reasons_that_are_not_said_any_more():
    known = re.findall(r'^  (?:"([^"]+)"|(\w+)): "', WORDS.read_text("utf-8"), re.M)

    assert {quoted or bare for quoted, bare in known} - SAID == {"outweighed"}
