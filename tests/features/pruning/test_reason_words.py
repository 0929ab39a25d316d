"""What is said of a gap in French has its words in English, for the dashboard."""

import re
from pathlib import Path

from kimi_proxy.features import recovery
from kimi_proxy.features.pruning import explain

FOLDER = Path(explain.__file__).parents[2] / "dashboard"
WORDS = (FOLDER / "words" / "cut_reason.js").read_text("utf-8")
READER = (FOLDER / "codes" / "cut_reason.js").read_text("utf-8")


def test_every_kind_of_block_has_its_words_and_no_other_has():
    english, french = (set(re.findall(r'^    "kind ([^"]+)"', part, re.M)) for part in WORDS.split("\n  fr: {"))

    assert english == french == set(explain._KINDS.values())


def test_the_page_knows_how_a_reason_begins():
    assert f"^{explain.OFF_FOCUS}(" in READER
    assert f'"{recovery.REASON}"' in READER
    assert all(form in READER for form in ("lignes répétées: (", " blocs: (", "suite de ("))
