"""Memory weighs what a plain recount of its segments gives."""

from hypothesis import given
from hypothesis import strategies as st

from kimi_proxy.core import tokens
from kimi_proxy.features.chat.memory import PREVIEW_CHARS, MemoryFound, by_kind, segments, weigh_text

BLOCKS = (
    "<mcp-memory>Le café est à gauche.</mcp-memory>",
    "[MEMORY]tabs, not spaces[/MEMORY]",
    "@recall(l'ordre des étapes)",
    "@remember(port = f(8000))",
)


@given(st.lists(st.tuples(st.text(max_size=20), st.sampled_from(BLOCKS)), max_size=8))
def test_memory_is_the_sum_of_its_segments(pieces: list[tuple[str, str]]):
    text = "".join(f"{words}\n{block}\n" for words, block in pieces)
    weighed = weigh_text(text, tokens.count)

    recount = sum(tokens.count(text[one.start : one.end]) for one in segments(text))
    assert weighed.memory == recount == sum(found.tokens for found in weighed.found)
    assert weighed.memory <= weighed.tokens == tokens.count(text)


def test_a_text_without_memory_is_all_chat():
    assert weigh_text("nothing to remember", len).memory == 0


def test_memory_is_never_more_than_its_text():
    # A count that likes long texts better.
    assert weigh_text("@memory[a] @memory[b]", lambda text: 1).memory == 1


def test_each_kind_is_summed_up_with_the_beginning_of_its_first():
    found = weigh_text("@memory[a] <mcp-memory>b\n  c</mcp-memory> @memory[dd]", len).found

    assert found == (
        MemoryFound("mcp-memory", 1, len("<mcp-memory>b\n  c</mcp-memory>"), "<mcp-memory>b c</mcp-memory>"),
        MemoryFound("@memory", 2, len("@memory[a]@memory[dd]"), "@memory[a]"),
    )
    assert by_kind([*found, *found])[1] == MemoryFound("@memory", 4, 2 * len("@memory[a]@memory[dd]"), "@memory[a]")


def test_a_preview_is_short_and_can_be_written_down():
    (found,) = weigh_text("<mcp-memory>\ud800" + "x" * 1000 + "</mcp-memory>", len).found

    assert len(found.preview) == PREVIEW_CHARS
    assert found.preview.encode()
