"""A request as a cache sees it: marks that move and ids that are drawn change nothing."""

import json

import pytest
from tests.recordings.provider import blocks, with_fixed_ids
from tests.support.conversations import Assistant, Call, Result, User, request

from kimi_proxy.core.chat import Request, Wire, parse
from kimi_proxy.features.chat.context import tokens_of

ITEMS = (User("do"), Assistant("so", (Call("c1", "bash", {"command": "ls"}),)), Result("c1", "a file"))


@pytest.mark.parametrize("wire", list(Wire))
def test_blocks_weigh_what_the_request_weighs(wire: Wire):
    asked = request(wire, ITEMS)

    assert sum(block.tokens for block in blocks(asked, len)) == tokens_of(asked, len)


@pytest.mark.parametrize("wire", list(Wire))
def test_a_conversation_that_goes_on_begins_with_the_same_blocks(wire: Wire):
    before, after = (blocks(request(wire, items), len) for items in (ITEMS[:1], ITEMS))

    assert after[: len(before)] == before
    assert len(after) > len(before)


def marked(at: int) -> Request:
    said: list[dict[str, object]] = [{"role": "user", "content": [{"type": "text", "text": word}]} for word in "ab"]
    content = said[at]["content"]
    assert isinstance(content, list)
    content[0]["cache_control"] = {"type": "ephemeral"}
    return parse(json.dumps({"model": "m", "system": "s", "messages": said}).encode(), Wire.MESSAGES)


def test_a_mark_that_moves_changes_no_text():
    first, second = blocks(marked(0), len), blocks(marked(1), len)

    assert [block.text for block in first] == [block.text for block in second]
    assert [block.is_marked for block in first] == [False, True, False]
    assert [block.is_marked for block in second] == [False, False, True]


def test_ids_weigh_the_same_in_every_run():
    assert with_fixed_ids("id=msk_0123456789abcdef]") == with_fixed_ids("id=msk_zzzzzzzzzzzzzzzz]")
    assert with_fixed_ids("id=msk_short") == "id=msk_short"
