from dataclasses import replace
from hashlib import sha256

import pytest
from tests.support.texts import a_question

from kimi_proxy.core import json
from kimi_proxy.core.config.servers import MaskingSettings
from kimi_proxy.core.errors import InvalidParams
from kimi_proxy.core.json import JsonObject
from kimi_proxy.core.prune import Annotation, CallContext, Cut, Pruned, Question
from kimi_proxy.features.sanitizer.shorten import Hidden
from kimi_proxy.services import originals

OPTIONS = a_question("").options
PRUNED = Pruned("x", (Annotation(Cut(2, 9, "hors focus"), "⟦…⟧"),), 12, 100, 40)


def note_of(question: Question) -> bytes:
    return json.encode(originals.PrunedLines.of(question, PRUNED, "heuristic").to_note())


def test_a_note_brings_back_the_question_and_the_cuts() -> None:
    question = a_question("text", goal="why? \ud800", annotate_lines=True)
    note = originals.decode_note(note_of(question), "prn_x")
    assert note.question == replace(question, text="", options=replace(question.options, timeout_ms=0))
    assert list(note.cuts) == [Cut(2, 9, "hors focus")]


def test_a_note_of_a_chat_brings_back_what_the_agent_was_doing() -> None:
    context = CallContext("Read", "a.py", "why?", said="I read it.", seen_rows=(3, 4), edits_by_quoting=True)
    question = replace(a_question("text"), context=context)
    assert originals.decode_note(note_of(question), "prn_x").context == context


def test_the_same_question_makes_the_same_note_whatever_time_it_had() -> None:
    quick, slow = a_question("text", timeout_ms=1), a_question("text", timeout_ms=9_000)
    assert note_of(quick) == note_of(slow)


def test_a_note_stays_small() -> None:
    assert len(note_of(a_question("text", goal="g" * 10**6))) < 12_000


@pytest.mark.parametrize("note", [b"", b"{}", b"null", b'{"goal": 1}', b"\xff"])
def test_another_kind_of_note_is_no_explanation(note: bytes) -> None:
    with pytest.raises(InvalidParams) as refused:
        originals.decode_note(note, "prn_x")
    assert refused.value.field == "prune_id"


CUT = originals.PrunedLines(replace(a_question(""), goal="why?"), (Cut(2, 9, "hors focus"),), 12, (100, 40))
SOURCES: tuple[originals.Source, ...] = (
    replace(CUT, session="ses_1"),
    originals.PrintedText("contents"),
    originals.PrintedText(session="ses_1"),
    originals.HookOutput(replace(CUT, session="ses_1"), "Bash", "ses_1", "pruned", 900, 12, (100, 40)),
    originals.HookOutput(originals.PrintedText(session="ses_1"), "Bash", "ses_1", "masked", 900, 12, (100, 40)),
    originals.MaskedText("files", 5000, 3, MaskingSettings(max_chars=400), "why?"),
    originals.SummarizedHistory("ses_1"),
)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: type(source).__name__)
def test_a_note_says_where_its_original_came_from(source: originals.Source) -> None:
    expected = source
    if isinstance(source, originals.PrunedLines):  # the time that a question had is not in its note
        expected = replace(source, question=replace(source.question, options=replace(OPTIONS, timeout_ms=0)))
    if isinstance(source, originals.HookOutput) and isinstance(source.cut, originals.PrunedLines):
        question = replace(source.cut.question, options=replace(OPTIONS, timeout_ms=0))
        expected = replace(source, cut=replace(source.cut, question=question))

    assert originals.read_source(json.encode(source.to_note())) == expected


# As they are written; those of earlier versions, without `part_chars`, are read too.
CUT_NOTE = {
    "goal": "g",
    "source_type": "logs",
    "options": {
        "max_prune_ratio": 0.5,
        "min_keep_lines": 0,
        "timeout_ms": 0,
        "annotate_lines": False,
        "include_markers": True,
    },
    "cuts": [{"start": 2, "end": 3, "reason": "r"}],
    "stats": {
        "backend": "heuristic",
        "original_lines": 4,
        "pruned_lines": 2,
        "tokens_est_before": 0,
        "tokens_est_after": 0,
    },
    "warnings": [],
    "part_chars": [],
}
HIDDEN = Hidden("prn_1", "a\nb\nc\nd", "logs", 0.5, (Cut(2, 3, "r"),))
LIMITS = MaskingSettings(max_chars=400)


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (originals.hidden_source(HIDDEN, "g"), CUT_NOTE),
        (originals.hidden_source(HIDDEN, "g", "ses_1"), {**CUT_NOTE, "session": "ses_1"}),
        (originals.hidden_source(Hidden("prn_1", "a"), "g", "ses_1"), {"what": "output", "session": "ses_1"}),
        (originals.PrintedText("contents"), {"what": "contents"}),
        (originals.SummarizedHistory("ses_1"), {"what": "history", "session": "ses_1"}),
        (
            originals.MaskedText("files", 5, 1, LIMITS, "g"),
            {
                "what": "mask",
                "server": "files",
                "chars": 5,
                "lines": 1,
                "limits": LIMITS.model_dump(exclude={"enabled"}),
                "goal": "g",
            },
        ),
        (
            originals.HookOutput(originals.hidden_source(HIDDEN, "g"), "Bash", "ses_1", "pruned", 7, 4, (9, 3)),
            {
                **CUT_NOTE,
                "door": "hooks",
                "tool": "Bash",
                "session": "ses_1",
                "why": "pruned",
                "chars": 7,
                "lines": 4,
                "tokens_before": 9,
                "tokens_after": 3,
            },
        ),
    ],
)
def test_a_note_has_the_bytes_that_it_always_had(source: originals.Source, note: JsonObject) -> None:
    assert json.encode(source.to_note()) == json.encode(note)


def test_a_text_is_found_by_the_key_that_it_always_had() -> None:
    assert originals.key_of("output", b"text", b"place") == sha256(b"output\0placetext").digest()
    assert originals.key_of("hook", b"text", b"prn_1") == sha256(b"hook\0prn_1text").digest()
    assert originals.key_of("mask", b"text") == sha256(b"mask\0text").digest()
    assert originals.key_of("history", b"text") == sha256(b"history\0text").digest()


@pytest.mark.parametrize("note", [b"", b"{}", b"null", b"[]", b'{"what": 1}', b'{"stats": {}, "goal": "g"}', b"\xff"])
def test_a_note_that_does_not_say_it_is_no_error(note: bytes) -> None:
    assert originals.read_source(note) is None
