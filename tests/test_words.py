"""The code speaks the field's words, so that a newcomer's grep finds the place."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kimi_proxy"
# Words of a private dialect that once stood for a serializer, an observer, a fallback and the like.
BANNED = re.compile(
    r"\b(?:told|tells?|telling|heard|unheard|whoever|nobody|somebody|stranger|regret|gave way|witness(?:es)?"
    r"|behind (?:its|the request's) back|pinboard|roll[ _]call|presence|warden|reaper)\b",
    re.I,
)
MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def test_module_docstrings_use_no_word_of_a_private_dialect():
    docstrings = {path.relative_to(SOURCE): ast.get_docstring(tree(path)) for path in MODULES}

    assert {str(path): found for path, text in docstrings.items() if (found := BANNED.findall(text or ""))} == {}


def test_the_texts_of_the_dashboard_use_no_word_of_a_private_dialect():
    spoken = {path.name: path.read_text("utf-8") for path in (SOURCE / "dashboard" / "words").glob("*.js")}

    assert spoken
    assert {name: found for name, text in spoken.items() if (found := BANNED.findall(text))} == {}


def test_the_architecture_page_uses_no_word_of_a_private_dialect_and_has_a_short_glossary():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    terms = re.findall(r"^\| ([^|]+?) \|", page.partition("## Glossary")[2], re.M)[2:]

    assert BANNED.findall(page) == []
    assert 0 < len(terms) <= 25


def test_every_path_that_the_guides_name_exists():
    named = {
        (guide, path)
        for guide in ("ARCHITECTURE.md", "CONTRIBUTING.md")
        for path in re.findall(
            r"`((?:api|cli|core|features|lab|proxy|services|dashboard)/[\w/.]+)`", (ROOT / guide).read_text("utf-8")
        )
        if "NAME" not in path
    }
    missing = {
        (guide, path) for guide, path in named if not (SOURCE / path).exists() and not (SOURCE / f"{path}.py").exists()
    }

    assert missing == set()


def test_every_module_says_what_it_is():
    assert [str(path) for path in MODULES if not ast.get_docstring(tree(path))] == []


def test_no_class_name_is_defined_twice():
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))

    assert {name: where for name, where in places.items() if len(where) > 1} == {}
