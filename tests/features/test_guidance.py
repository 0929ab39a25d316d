"""The guidance is short, and is the same wherever it stands."""

from pathlib import Path

from kimi_proxy.core import tokens
from kimi_proxy.features.clients import GUIDANCE

PAGE = Path(__file__).parent.parent.parent / "docs" / "agent-guidance.md"


def test_it_costs_little_on_every_turn():
    count = tokens.count(GUIDANCE)

    print(f"the guidance has {count} tokens")
    assert count <= 250


def test_the_page_shows_it_as_it_is():
    assert GUIDANCE in PAGE.read_text("utf-8")
