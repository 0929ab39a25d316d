"""What is said of a line in English has its words in French, for the dashboard."""

import re
from pathlib import Path

from kimi_proxy.features.pruning import explain
from kimi_proxy.features.pruning.engine import outline

WORDS = Path(explain.__file__).parents[2] / "dashboard" / "words" / "why.js"
SAID = {
    *explain._PROTECTED.values(),
    *explain._REASON_OF.values(),
    "nothing matches the goal",
    "fills a gap that would save less than its marker costs",
}


def test_every_reason_has_its_french_words():
    known = re.findall(r'^  (?:"([^"]+)"|(\w+)): "', WORDS.read_text("utf-8"), re.M)

    assert SAID - {quoted or bare for quoted, bare in known} == set()


def test_no_words_are_left_of_reasons_that_are_not_said_any_more():
    known = re.findall(r'^  (?:"([^"]+)"|(\w+)): "', WORDS.read_text("utf-8"), re.M)

    assert {quoted or bare for quoted, bare in known} - SAID == {"outweighed"}


def test_whatever_an_outline_keeps_has_words():
    code = ["def f():", '    """For example:', "", "    import this", "    class Example:", '    """', "    return 1"]
    log = [*(f"Downloading package-{n}" for n in range(40)), "src/app.py:3:1: F401 'os' imported but unused"]
    kept = {*outline(code, "code").protected, *outline(log, "logs").protected} - {""}

    assert {"likeness", "diagnostic"} <= kept
    assert kept - set(explain._PROTECTED) == set()
