"""What an agent was doing when each of its tools answered."""

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.edit import Place
from kimi_proxy.core.prune import CallContext
from kimi_proxy.features.sanitizer.plan import contexts

WIRES = pytest.mark.parametrize("wire", list(Wire))
LINE, OTHER = "def total(prices, rate):", "    return sum(prices) * rate"


def found(wire: Wire, items: list[Item], shown: dict[Place, str] | None = None) -> list[CallContext]:
    return list(contexts(request(wire, items), edits_by_quoting=True, shown=shown or {}).values())


def read(call_id: str, path: str, text: str, said: str = "", tool: str = "read_file") -> list[Item]:
    return [Assistant(said, (Call(call_id, tool, {"path": path}),)), Result(call_id, text)]


@WIRES
def test_the_words_of_the_user_and_the_agent_and_the_call_are_known(wire: Wire):
    items = [User("fix the rounding"), *read("c1", "src/tax.py", LINE, said="I read the tax code first.")]
    (context,) = found(wire, items)

    assert (context.tool, context.path, context.user) == ("read_file", "src/tax.py", "fix the rounding")
    assert context.said == "I read the tax code first."
    assert "src/tax.py" in context.arguments
    assert (context.results, context.siblings, context.recent) == (0, 0, "")


@WIRES
def test_what_came_before_is_known_too(wire: Wire):
    items: list[Item] = [
        User("fix the rounding"),
        *read("c1", "tax.py", LINE, said="First the tax code."),
        *read("c2", "tax.py", "done", tool="edit_file"),
        User("now the tests"),
        *read("c3", "tax.py", f"{OTHER}\n{LINE}\n"),
    ]
    first, edit, again = found(wire, items)

    assert (first.was_read, first.was_edited, edit.was_read) == (False, False, True)
    assert (again.was_read, again.was_edited, again.results) == (True, True, 2)
    assert again.user == "fix the rounding\nnow the tests"
    assert "First the tax code." in again.recent
    assert again.seen_rows == (1,)


@WIRES
def test_a_row_that_was_cut_from_an_earlier_result_was_not_seen(wire: Wire):
    items: list[Item] = [User("go"), *read("c1", "a.py", f"{LINE}\n{OTHER}"), *read("c2", "a.py", f"{LINE}\n{OTHER}")]
    place = next(iter(contexts(request(wire, items), edits_by_quoting=False, shown={})))

    assert [context.seen_rows for context in found(wire, items)] == [(), (0, 1)]
    assert [context.seen_rows for context in found(wire, items, {place: LINE})] == [(), (0,)]


def test_texts_are_short_and_can_be_sent_to_a_worker():
    items: list[Item] = [User("u" * 5000), *read("c1", "a.py", LINE, said="\ud800" * 5000)]
    (context,) = found(Wire.CHAT, items)

    assert len(context.user) <= 600 and len(context.said) <= 1000
    context.said.encode()


def test_a_result_without_a_call_has_no_context():
    assert found(Wire.CHAT, [User("go"), Result("unknown", LINE)]) == []
