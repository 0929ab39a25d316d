"""No reader stumbles over a text in which something is missing, and what it finds lies within the text."""

import random
from collections.abc import Callable

import pytest
from tests.support.deep import IS_DEEP
from tests.support.records import KINDS, damaged

from kimi_proxy.features.records.formats import read_json, read_lines, read_ndjson, read_paragraphs, read_xml
from kimi_proxy.features.records.read import Rows, read, read_rows
from kimi_proxy.features.records.tree import Node, descend

TIMES = 2000 if IS_DEEP else 25
Reader = Callable[[str], Node | None]
READERS: dict[str, Reader] = {
    "read": read,
    "read_rows": read_rows,
    "read_json": read_json,
    "read_ndjson": read_ndjson,
    "read_xml": read_xml,
    "read_paragraphs": lambda text: read_paragraphs(Rows(text)),
    "read_lines": lambda text: read_lines(Rows(text)),
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_text_is_read_as_far_as_it_goes(kind: str, reader: Reader):
    rng = random.Random(f"{kind} {TIMES}")
    for _ in range(TIMES):
        text = damaged(KINDS[kind], rng)
        root = reader(text)
        for node in descend(root) if root is not None else ():
            assert 0 <= node.start <= node.end <= len(text)


def test_every_kind_of_text_but_prose_logs_and_code_is_made_of_records():
    assert {kind for kind, text in KINDS.items() if read(text) is None} == {"prose", "log", "code"}
