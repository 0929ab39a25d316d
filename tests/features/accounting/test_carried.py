"""What a request carries: what is old in it, what was read back, and what its notes say that things cost."""

import pytest
from tests.support.conversations import Assistant, Call, Item, Result, User, request

from kimi_proxy.core.chat import Wire
from kimi_proxy.core.chat.reply import Usage
from kimi_proxy.features.accounting import Sent, Weights, sent_tokens, weights
from kimi_proxy.features.chat.context import composition
from kimi_proxy.features.chat.memory import weigh_text
from kimi_proxy.features.chat.pipeline import Note


def weighed(wire: Wire, *items: Item) -> Weights:
    asked = request(wire, items)
    return weights(asked, composition(asked, lambda text: weigh_text(text, len)))


RECOVER = Call("c2", "mcp__pruner__recover_text", {"id": "prn_1"})


@pytest.mark.parametrize("wire", list(Wire))
def test_old_is_what_stands_before_the_model_s_last_answer(wire: Wire):
    first = weighed(wire, User("why?"))
    second = weighed(wire, User("why?"), Assistant("because"), User("and?"))

    assert first.old == 0
    assert second.old == first.total
    assert (second.recovered, second.recoveries, second.has_outputs) == (0, 0, False)


@pytest.mark.parametrize("wire", list(Wire))
def test_texts_that_a_tool_of_ours_gave_back_are_known_and_counted_once_when_they_are_new(wire: Wire):
    begun = (User("why?"), Assistant("", (Call("c1"),)), Result("c1", "cut"), Assistant("", (RECOVER,)))
    new = weighed(wire, *begun, Result("c2", "x" * 500))
    old = weighed(wire, *begun, Result("c2", "x" * 500), Assistant("so"), User("and?"))

    assert (new.recovered, new.recoveries, new.has_outputs) == (500, 1, True)
    assert (old.recovered, old.recoveries) == (500, 0)


@pytest.mark.parametrize("wire", list(Wire))
def test_a_refused_call_reads_nothing_back(wire: Wire):
    refusal = "Claude requested permissions to use mcp__pruner__recover_text, but you haven't granted it yet."
    asked = weighed(wire, User("why?"), Assistant("", (RECOVER,)), Result("c2", refusal, failed=True))

    assert (asked.recovered, asked.recoveries, asked.has_outputs) == (0, 0, True)


def test_notes_tell_what_was_resent_and_what_summaries_cost():
    notes = [
        Note("sanitizer_event", {"prefix_tokens_resent": 900, "tokens_saved": 5}),
        Note("compression_event", {"summary_input_tokens": 70, "summary_output_tokens": 8, "automatic": True}),
        Note("compression_event", {"summary_input_tokens": True, "summary_output_tokens": "8"}),
    ]

    told = sent_tokens(Weights(100, 50, 20, 1), Weights(60, 40), notes, is_rewritten=False)

    assert told == Sent(100, 60, 50, 40, True, 20, 1, 1, Usage(70, 8))
    assert sent_tokens(Weights(1), Weights(1), (), is_rewritten=False) == Sent(1, 1)
