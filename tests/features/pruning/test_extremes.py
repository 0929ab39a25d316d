"""Questions for an extreme: the line with the highest or lowest number of a column stays, with what it belongs to."""

import pytest

from kimi_proxy.core import tokens
from kimi_proxy.core.prune import Options, Question
from kimi_proxy.features.pruning import engine
from kimi_proxy.features.pruning.extremes import asked_extreme, extreme_rows


@pytest.mark.parametrize(
    ("goal", "way"),
    [
        ("Which request took the longest?", "highest"),
        ("What is the smallest package?", "lowest"),
        ("Quelle a été la nuit la plus froide ?", "lowest"),
        ("Quel fichier prend le plus de place ?", "both"),
        ("In which month were the most jobs lost?", "both"),
        ("Why does the latest test of the request fail?", None),
        ("Where is the manifest digest of the guest?", None),
        ("", None),
    ],
)
def test_a_superlative_says_which_end_of_a_column_is_asked_for(goal: str, way: str | None):
    assert asked_extreme(goal) == way


@pytest.mark.parametrize(
    ("line", "odd", "goal"),
    [
        ("-rw-r--r-- 1 root root {} Mar  3 10:0{} part_{}.so", 1_693_064, "Which file takes the most room?"),
        ("lib/part_{2}.rb:{1}:5: C: Method has too many lines. [{0}/10]", 962, "Which method is the longest?"),
        ("    M {2}:0 part_{2} - D ({0})", 821, "What is the worst function?"),
        ("GET /part/{2} {1} {0}.482ms", 911, "Quelle requête est la plus lente ?"),
    ],
)
def test_the_row_with_the_extreme_of_a_column_is_found(line: str, odd: int, goal: str):
    lines = [line.format(odd if at == 173 else 100 + at * 37 % 90, at % 10, at) for at in range(300)]

    assert 173 in extreme_rows(lines, goal, lambda: None)


def test_numbers_that_only_count_up_have_no_extreme():
    lines = [f"{1_700_000_000 + at} step {at} done" for at in range(300)]

    assert extreme_rows(lines, "Which step took the longest?", lambda: None) == []


def test_an_extreme_stays_with_the_head_of_its_paragraph():
    paragraphs = [
        "\n".join([f"./folder_{at}:", *(f"-rw-r--r-- 1 dev dev {900 + at * 7 % 50} Mar 3 {n}.txt" for n in range(12))])
        for at in range(90)
    ]
    paragraphs[61] += "\n-rw-r--r-- 1 dev dev 918273 Mar 3 dump.bin\n-rw-r--r-- 1 dev dev 911 Mar 3 z.txt"
    text = "\n\n".join(paragraphs)
    options = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)
    question = Question(text, "Which is the largest of them?", "logs", options, room=tokens.count(text) // 6)

    shown = engine.prune(question, "prn_0123456789abcdef").text
    assert "./folder_61:" in shown and "918273 Mar 3 dump.bin" in shown


@pytest.mark.parametrize("goal", ["In which year were the most people out of work?", "Quelle année a été la pire ?"])
def test_the_extreme_of_a_table_stays(goal: str):
    rows = [f"{1800 + at},{4 + at * 13 % 7 / 10},{at % 4},note {at}" for at in range(400)]
    rows[211] = "2011,14.9,3,note 211"
    text = "\n".join(["year,unemp,quarter,remark", *rows]) + "\n"
    options = Options(1.0, 0, 0, annotate_lines=False, include_markers=True)
    question = Question(text, goal, "logs", options, room=tokens.count(text) // 8)

    assert "2011,14.9,3,note 211" in engine.prune(question, "prn_0123456789abcdef").text
