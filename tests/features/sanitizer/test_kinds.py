"""What an output is."""

import json

import pytest
from tests.support import outputs

from kimi_proxy.core.prune import Origin
from kimi_proxy.features.pruning.kinds import kind_of

CODE = outputs.source_file().text
PROSE = "# Reader\n\nThe reader takes rows from a file and gives them to whoever asks for them first.\n" * 30
LOG = outputs.build_log(200).text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (outputs.pytest_log(300).text, "logs"),
        (LOG, "logs"),
        (CODE, "code"),
        (PROSE, "docs"),
        (outputs.records(20).text, "json"),
        (outputs.records(20, indent=2).text, "json"),
        (outputs.search_hits(100).text, "listing"),
        (json.dumps({"output": LOG}), "json"),
        ("{ not json", "code"),
        ("\n".join(f"2026-01-02 03:04:{i % 60:02} INFO GET /page{i} 200" for i in range(100)), "logs"),
        ("\n".join(f"Jan  2 03:04:{i % 60:02} host app[{i}]: took {i} ms" for i in range(100)), "logs"),
    ],
)
def test_it_is_told_by_its_text(text: str, kind: str):
    assert kind_of(Origin(), text) == kind


@pytest.mark.parametrize(
    ("origin", "text", "kind"),
    [
        (Origin("read_file", path="docs/a.md"), CODE, "docs"),
        (Origin("read_file", path="a.log"), CODE, "logs"),
        (Origin("bash", command="cat src/a.py"), PROSE, "code"),
        (Origin("bash", command="cd src && sed -n 1,80p a.md"), CODE, "docs"),
        (Origin("bash", command="git diff"), PROSE, "code"),
        (Origin("bash", command="make"), PROSE, "logs"),
        (Origin("bash", command="man make | col -b"), PROSE, "docs"),
        (Origin("bash", command="pytest -q | tail"), LOG, "logs"),
        (Origin("execute_command"), PROSE, "logs"),
        (Origin("read_file", failed=True), CODE, "logs"),
    ],
)
def test_what_the_tool_was_asked_says_more(origin: Origin, text: str, kind: str):
    assert kind_of(origin, text) == kind
