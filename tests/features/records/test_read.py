"""Which texts are made of records, and what stands where some of them were left out."""

# ruff: noqa: E501 - rows of tables

import json
import sysconfig
from pathlib import Path

import pytest
import yaml
from tests.support import outputs

from kimi_proxy.core.lines import split_at
from kimi_proxy.features.records.choose import Ranking
from kimi_proxy.features.records.fitting import write_by_chars
from kimi_proxy.features.records.read import read
from kimi_proxy.features.records.tree import is_one_line, part_starts

ID = "msk_0123456789abcdef"
MARKED = "[KIMI_PROXY_OBSERVATION_MASKED "


def never() -> None:
    pass


def cut(text: str, goal: str = "", budget: int = 1200) -> str:
    root = read(text)
    assert root is not None
    gaps = Ranking(text, root, goal, budget, never).pick(budget, budget // 2)
    assert gaps
    return write_by_chars(text, gaps, ID)


def rows(odd: str, usual: str, count: int = 200, at: int = 120) -> str:
    return "\n".join(odd if n == at else usual.format(n=n) for n in range(count)) + "\n"


TABLES = {
    "csv": ("sale,city,amount\n" + rows("120,Oslo,-9000", "{n},Lyon,17"), "120,Oslo,-9000", '"... ' + MARKED),
    "index": (";a;b\n" + rows("120;broken;x", "{n};fine;x"), "120;broken;x", '"... ' + MARKED),
    "markdown": (
        "| a | b |\n|---|---|\n" + rows("| 120 | gone |", "| {n} | here |"),
        "| 120 | gone |",
        "| ... " + MARKED,
    ),
    "mysql": (
        "+----+------+\n| id | name |\n+----+------+\n"
        + rows("| 120 | sin |", "| {n} | ok  |")
        + "+----+------+\n200 rows in set\n",
        "| 120 | sin |",
        "200 rows in set",
    ),
    "psql": (
        " id | name\n----+------\n" + rows(" 120 | sin", " {n} | ok") + "(200 rows)\n",
        " 120 | sin",
        "(200 rows)",
    ),
    "columns": (
        "NAME        READY   STATUS    AGE\n"
        + rows("web-120     0/1     Pending   3m", "web-{n:<7} 1/1     Running   3d"),
        "web-120     0/1     Pending   3m",
        "NAME        READY",
    ),
}


@pytest.mark.parametrize(("text", "odd", "stays"), TABLES.values(), ids=TABLES)
def test_a_table_keeps_its_header_and_the_row_that_is_unlike_the_others(text: str, odd: str, stays: str):
    left = cut(text)

    assert odd in left
    assert stays in left
    assert left.startswith(text[: text.index("\n")])
    assert len(left) <= 1200


def test_yaml_stays_yaml_with_anchors_comments_and_blocks_of_text():
    service = "  web-{n}:\n    <<: *base\n    # number {n}\n    command: >\n      run it\n      - now\n    ports: ['80', 81]\n"
    services = "".join(service.format(n=n) + ("    privileged: true\n" if n == 41 else "") for n in range(60))
    text = "x-base: &base\n  restart: always\nservices:\n" + services + "volumes:\n  data: {}\n"
    left = cut(text, "which one is privileged?")

    assert yaml.safe_load(left)["services"]["web-41"] == yaml.safe_load(text)["services"]["web-41"]
    assert "# ... " + MARKED in left


def test_a_list_may_stand_at_the_indentation_of_its_key():
    items = "".join(f"- name: n{n}\n  tags:\n  - a\n  ok: {'false' if n == 70 else 'true'}\n" for n in range(140))
    left = cut(f"items:\n{items}", budget=1500)

    assert {"name": "n70", "tags": ["a"], "ok": False} in yaml.safe_load(left)["items"]


def test_html_with_elements_that_never_end_and_scripts_is_read():
    cells = "".join(f"<tr class=row><td>word<br>{n}</td><td><img src='/a.png'></td></tr>\n" for n in range(90))
    odd = "<tr class=row><td>Zanzibar</td><td>7777</td></tr>\n"
    text = f"<!DOCTYPE html>\n<html><head><script>if (a < b) x()</script></head><body><table>\n{cells}{odd}{cells}</table></body></html>"
    left = cut(text, "Zanzibar")

    assert odd.strip() in left
    assert "<script>if (a < b) x()</script>" in left
    assert "<!-- ... " + MARKED in left


def test_a_commit_stays_with_its_header_and_its_files_with_theirs():
    commit = "commit {hash}\nAuthor: A <a@b>\nDate:   Mon\n\n    Change number {n}\n\n src/a.py | 3 ++-\n"
    log = "\n".join(commit.format(hash=f"{n:040x}", n=n) for n in range(90)).replace(
        "Change number 44", "Turn off certificates"
    )
    left = cut(log, "who turned off certificates?")

    assert f"commit {44:040x}\nAuthor: A <a@b>\nDate:   Mon\n\n    Turn off certificates\n" in left


@pytest.mark.parametrize(
    "text",
    [
        outputs.source_file().text,
        outputs.pytest_log().text,
        outputs.search_hits().text,
        (Path(sysconfig.get_path("stdlib")) / "traceback.py").read_text(),
        (Path(sysconfig.get_path("stdlib")) / "inspect.py").read_text(),
        "INFO: started\nINFO: ready\n" * 50,
        "A sentence, with a comma, in it.\nAnother: one, that has, more of them.\n" * 40,
        "# only\n# comments\n" * 100,
        "",
    ],
    ids=["code", "log", "hits", "traceback.py", "inspect.py", "levels", "prose", "comments", "nothing"],
)
def test_code_logs_and_prose_are_not_made_of_records(text: str):
    assert read(text) is None


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"id": n, "deep": {"list": [n] * 30}} for n in range(300)]),
        "<r>" + "".join(f"<a id='{n}'>text {n}</a>" for n in range(300)) + "</r>",
        "function a(b){return b+1};" * 300,
        "words without any end " * 300,
        "x" * 9000,
        json.dumps({"text": "line\\n" * 3000}) + "\n\n",
        json.dumps({"text": "line\n" * 3000}),
        json.dumps({"text": "\\" * 3000 + "é😀" * 900}),
    ],
)
def test_the_parts_of_one_line_make_up_the_whole_line(text: str):
    root = read(text)
    assert is_one_line(text) and root is not None
    found = split_at(text, part_starts(root))
    assert "".join(found) == text
    assert len(found) > 5


@pytest.mark.parametrize("word", ["\\n", "\n", "\\", "😀", "é", "a word ", '"'])
def test_a_gap_in_a_long_string_breaks_no_escape(word: str):
    text = json.dumps({"log": word * 3000, "code": 7})
    left = json.loads(cut(text))

    assert left["code"] == 7
    assert MARKED in left["log"]
    before, _, after = left["log"].partition(" ... " + MARKED)
    assert before == (word * 3000)[: len(before)] and after


def test_lines_that_begin_with_a_unix_time_are_no_commits():
    log = "".join(
        f"{1117838570 + at * 7} 2005.06.03 R02-M1-N0 RAS KERNEL INFO event {at} corrected\n" for at in range(60)
    )
    found = read(log)

    assert found is None or any(child.children for child in found.children), "it is read word by word, if at all"


def test_a_page_of_html_is_read_by_its_lines_and_a_table_by_its_rows():
    page = "".join(f"<h2 id=part-{n}>Part {n}</h2>\n<p>The order of part {n} is kept.</p>\n" for n in range(60))
    table = "".join(f"<tr><td>part {n}</td><td>kept</td></tr>\n" for n in range(60))

    assert read(f"<html><body>\n{page}</body></html>\n") is None
    assert read(f"<html><body><table>\n{table}</table></body></html>\n") is not None


def test_elements_that_are_void_in_html_are_read_in_xml():
    classes = "".join(f"<class filename='src/part_{n}.py'><line number='{n}' hits='1'/></class>\n" for n in range(40))
    xml = f"<coverage><sources><source>/src</source></sources>\n{classes}</coverage>\n"

    root = read(xml)
    assert root is not None and root.children[0].key == "coverage"


def test_the_attributes_of_the_elements_around_a_line_are_searched():
    lines = "".join(f"<line number='{n}' hits='{n % 2}'/>" for n in range(40))
    files = "".join(f"<class filename='src/part_{n}.py'>\n<lines>{lines}</lines></class>\n" for n in range(12))
    files += f"<class filename='src/ledger.py'>\n<lines>{lines}<line number='977' hits='0'/></lines></class>\n"

    left = cut(f"<coverage><packages>\n{files}</packages></coverage>\n", "Which lines of ledger.py are not covered?")
    assert "src/ledger.py" in left


def test_yaml_with_long_blocks_of_text_stays_yaml():
    member = "field_{n}:\n  description: |-\n{prose}\n  type: integer\n"
    prose = "\n".join("    It says at length what the field is for, and why (see above)." for _ in range(6))
    text = "".join(member.format(n=n, prose=prose) for n in range(60))
    left = cut(text, "What is field_33 for?")

    assert "field_33:" in left and len(left) < len(text) / 2
    assert list(yaml.safe_load(left)) == [name for name in yaml.safe_load(text) if f"{name}:" in left]
