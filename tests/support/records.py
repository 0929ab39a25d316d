"""A text of each kind that is made of records, and what a tool prints of it when something is missing."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby

ROWS = 40
# What separates two fields, or a name from its value.
_SEAMS = ",;:=|\t \"'<>[]{}"


def _rows(line: str) -> str:
    return "\n".join(line.format(n=n, odd=n % 3) for n in range(ROWS)) + "\n"


_COMMIT = (
    "commit {n:040x}\nAuthor: Ada <ada@example.org>\nDate:   Mon Jan 5 10:00:00 2026\n\n    Change {n}\n\n    Why.\n"
)
_HUNK = "@@ -{n},3 +{n},3 @@ def f{n}():\n     a = {n}\n-    b = 1\n+    b = 2\n"
_TRACE = (
    "java.lang.IllegalStateException: order {n}\n\tat com.example.Shop.pay(Shop.java:{n})\n"
    "\tat com.example.Shop.order(Shop.java:7)\n\tat com.example.Main.main(Main.java:1)\n"
)
_POD = (
    "Name:         web-{n}\nNamespace:    shop\nNode:         node-{odd}/10.0.0.{odd}\n"
    "Status:       Running\nIP:           10.1.0.{n}\n"
)

_HEADERS = "HTTP/1.1 200 OK\ndate: Mon, 05 Jan 2026 10:00:00 GMT\ncontent-type: application/json\n\n"

# By the format that a reader knows it by.
KINDS: Mapping[str, str] = {
    "json": json.dumps([{"id": n, "name": f"n{n}", "state": "ok", "note": None} for n in range(ROWS)], indent=2),
    "json in one line": json.dumps({f"k{n}": {"id": n, "text": "word " * 9} for n in range(ROWS)}),
    "json of text": json.dumps({"log": "".join(f"line {n} of it\n" for n in range(300)), "code": 7}),
    "ndjson": "\n".join(json.dumps({"id": n, "name": f"n{n}", "tags": [n, "a"]}) for n in range(ROWS)) + "\n",
    "xml": "<rows>\n" + _rows("<row id='{n}'><name>n{n}</name><state>ok</state></row>") + "</rows>",
    "html": "<html><body><script>if (a < b) x()</script>\n"
    + _rows("<p class=a>Text {n}.<br>More.</p>")
    + "</body></html>",
    "csv": "id,name,amount\n" + _rows('{n},"Oslo, {n}",17'),
    "tsv": "id\tname\tamount\n" + _rows("{n}\tOslo at the fjord\t17"),
    "markdown": "| id | name |\n|----|------|\n" + _rows("| {n} | Oslo with a long name |"),
    "mysql": "+----+------+\n| id | name |\n+----+------+\n"
    + _rows("| {n} | Oslo and more |")
    + "+----+------+\n40 rows in set\n",
    "psql": " id | name\n----+------\n" + _rows(" {n} | Oslo and more") + "(40 rows)\n",
    "columns": "NAME        READY   STATUS    AGE\n" + _rows("web-{n:<7} 1/1     Running   3d"),
    "pip list": "Package    Version\n---------- -------\n" + _rows("package{n:<3} 1.{n}.0 and more"),
    "yaml": "apiVersion: v1\nitems:\n" + _rows("- name: n{n}\n  tags:\n  - a\n  command: >\n    run it\n  ok: true"),
    "yaml documents": "---\n".join(f"kind: Pod\nname: n{n}\nspec:\n  image: i{n}\n  ports: [1]\n" for n in range(ROWS)),
    "log of git": _rows(_COMMIT),
    "short log of git": _rows("{n:07x}a (HEAD -> main) Change number {n} of all"),
    "diff": "diff --git a/f.py b/f.py\n--- a/f.py\n+++ b/f.py\n" + _rows(_HUNK),
    "traces": _rows(_TRACE),
    "traces of python": _rows(
        'Traceback:\n  File "a.py", line {n}, in f\n    x()\n  File "b.py", line 2, in g\nError: {n}\n'
    ),
    "paragraphs of kubectl": _rows(_POD),
    "ini": _rows("[section.{n}]\nname = n{n}\nhost = 10.0.0.{n}\nport = 80{n}\n"),
    "ldif": _rows("dn: uid={n},dc=example\nuid: u{n}\nmail: u{n}@example.org\nobjectClass: person\n"),
    "lock file": _rows('[[package]]\nname = "p{n}"\nversion = "1.{n}"\ndependencies = [\n "a",\n]\n'),
    "bibliography": _rows("@article{{key{n},\n  author = {{A. {n}}},\n  title = {{T {n}}},\n  year = {{2026}}\n}}\n"),
    "ping": _rows("64 bytes from 10.0.0.{odd}: icmp_seq={n} ttl=64 time=0.{n} ms"),
    "metrics": _rows('http_requests_total{{method="GET",code="200",path="/p{n}"}} {n}'),
    "hexdump": _rows("000000{n:02x} 48 65 6c 6c 6f 20 77 6f 72 6c 64 2e 0a 48 65 6c"),
    "script in one line": "".join(f"function f{n}(a){{return a+{n}}};" for n in range(120)),
    "words in one line": "some words without an end, " * 120,
    "body below its headers": _HEADERS
    + json.dumps([{"id": n, "name": f"n{n}", "state": "ok"} for n in range(80)])
    + "\n",
    "prose": _rows("This is sentence number {n}, with a comma. It is followed by another one."),
    "log": _rows("2026-01-02 03:04:05 INFO request {n} took {n} ms"),
    "code": _rows("def f{n}(a: int) -> int:\n    return a + {n}\n"),
}


def damaged(text: str, rng: random.Random) -> str:
    """Return the text with some of its fields gone, empty, cut off, repeated or in another place."""
    change = rng.choice(_DAMAGES)
    return change(text, rng)


def _fields(text: str) -> list[str]:
    """Return the pieces of a text, those that separate them among them."""
    return ["".join(run) for _, run in groupby(text, key=lambda c: (c in _SEAMS, c == "\n"))]


def _without_fields(text: str, rng: random.Random) -> str:
    share = rng.choice((0.003, 0.02, 0.2, 0.6))
    return "".join(piece for piece in _fields(text) if piece == "\n" or rng.random() >= share)


def _without_values(text: str, rng: random.Random) -> str:
    """Every line that has a name before `:`, `=` or another seam loses what follows, or some do."""
    seam, share = rng.choice(":=,|\t "), rng.choice((0.03, 0.3, 1.0))
    lines = text.split("\n")
    return "\n".join(
        f"{line.partition(seam)[0]}{seam}" if seam in line and rng.random() < share else line for line in lines
    )


def _without_lines(text: str, rng: random.Random) -> str:
    share = rng.choice((0.03, 0.3, 0.8))
    return "\n".join(line for line in text.split("\n") if rng.random() >= share)


def _with_empty_lines(text: str, rng: random.Random) -> str:
    share = rng.choice((0.03, 0.3))
    return "\n".join("" if rng.random() < share else line for line in text.split("\n"))


def _cut_off(text: str, rng: random.Random) -> str:
    return text[: rng.randint(0, len(text))] if rng.random() < 0.5 else text[rng.randint(0, len(text)) :]


def _repeated(text: str, rng: random.Random) -> str:
    start = rng.randint(0, len(text))
    end = min(len(text), start + rng.choice((1, 20, 500)))
    return text[:end] + text[start:end] * rng.choice((1, 3, 40)) + text[end:]


def _moved(text: str, rng: random.Random) -> str:
    pieces = _fields(text)
    for _ in range(rng.choice((1, 5, 50))):
        one, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        pieces[one], pieces[other] = pieces[other], pieces[one]
    return "".join(pieces)


def _mixed(text: str, rng: random.Random) -> str:
    other = rng.choice(list(KINDS.values()))
    return text[: rng.randint(0, len(text))] + other[rng.randint(0, len(other)) :]


def _odd_characters(text: str, rng: random.Random) -> str:
    for _ in range(rng.choice((1, 10))):
        at = rng.randint(0, len(text))
        text = (
            text[:at]
            + rng.choice(("\r", "\0", "\ud800", "\u2028", "\f", "é", "😀", "\\", '"', "⟧", "\ufeff"))
            + text[at:]
        )
    return text


Damage = Callable[[str, random.Random], str]
_DAMAGES: tuple[Damage, ...] = (
    _without_fields,
    _without_values,
    _without_lines,
    _with_empty_lines,
    _cut_off,
    _repeated,
    _moved,
    _mixed,
    _odd_characters,
)


def all_damaged(rng: random.Random, times: int) -> Iterator[tuple[str, str]]:
    """Yield the name of a kind and a text of it, damaged once or twice, `times` times for each kind."""
    for kind, text in KINDS.items():
        for _ in range(times):
            made = damaged(text, rng)
            yield kind, damaged(made, rng) if made and rng.random() < 0.5 else made
