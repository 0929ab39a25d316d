from dataclasses import replace

import pytest
from tests.support.texts import a_question

from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.prune import Annotation, CallContext, Cut, Pruned
from kimi_proxy.services import originals

PRUNED = Pruned("x", (Annotation(Cut(2, 9, "hors focus"), "⟦…⟧"),), 12, 100, 40)


def test_a_note_brings_back_the_question_and_the_cuts() -> None:
    question = a_question("text", goal="why? \ud800", annotate_lines=True)
    note = originals.decode_note(originals.encode_note(question, PRUNED, "heuristic"), "prn_x")
    assert note.question == replace(question, text="", options=replace(question.options, timeout_ms=0))
    assert list(note.cuts) == [Cut(2, 9, "hors focus")]


def test_a_note_of_a_chat_brings_back_what_the_agent_was_doing() -> None:
    context = CallContext("Read", "a.py", "why?", said="I read it.", seen_rows=(3, 4), edits_by_quoting=True)
    question = replace(a_question("text"), context=context)
    assert originals.decode_note(originals.encode_note(question, PRUNED, "heuristic"), "prn_x").context == context


def test_the_same_question_makes_the_same_note_whatever_time_it_had() -> None:
    quick, slow = a_question("text", timeout_ms=1), a_question("text", timeout_ms=9_000)
    assert originals.encode_note(quick, PRUNED, "heuristic") == originals.encode_note(slow, PRUNED, "heuristic")


def test_a_note_stays_small() -> None:
    assert len(originals.encode_note(a_question("text", goal="g" * 10**6), PRUNED, "heuristic")) < 12_000


@pytest.mark.parametrize("note", [b"", b"{}", b"null", b'{"goal": 1}', b"\xff"])
def test_another_kind_of_note_is_no_explanation(note: bytes) -> None:
    with pytest.raises(InvalidParams) as refused:
        originals.decode_note(note, "prn_x")
    assert refused.value.field == "prune_id"
