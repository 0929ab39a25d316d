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
# A function is named by what it does. A name that is a participle alone says what came out of it.
PARTICIPLE = re.compile(
    r"_*(?:\w+(?:ed|wn|ept|ught)|un?done|gone|given|taken|chosen|begun|came|leaves|told|held|found|sent|spent|made|said|paid)"
)
VERBS = {
    "down": "the command `kimi-proxy mcp down`, beside `up`",
    "_spawn": "a verb that only looks like one",
}
VERB_ENDINGS = re.compile(r"_*(?:feed|need|seed|embed|speed|shed)")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def prose(path: Path) -> str:
    """The docstrings and comments of a module."""
    comments = re.findall(r"(?:^|\s)#.*", path.read_text("utf-8"))
    named = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = (ast.get_docstring(node, clean=False) for node in ast.walk(tree(path)) if isinstance(node, named))
    return "\n".join((*comments, *filter(None, docstrings)))


def test_docstrings_and_comments_use_no_word_of_a_private_dialect():
    assert {str(path): found for path in MODULES if (found := BANNED.findall(prose(path)))} == {}


def test_functions_are_named_by_verbs_and_not_by_participles():
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for path in MODULES for node in ast.walk(tree(path)) if isinstance(node, functions)}
    alone = {name for name in names if "_" not in name.strip("_")} - VERBS.keys()

    assert {name for name in alone if PARTICIPLE.fullmatch(name) and not VERB_ENDINGS.fullmatch(name)} == set()
    assert VERBS.keys() <= names


def test_the_dashboard_uses_no_word_of_a_private_dialect():
    files = [path for ending in ("js", "css", "html") for path in (SOURCE / "dashboard").rglob(f"*.{ending}")]
    ours = [path for path in files if "vendor" not in path.parts]

    assert ours
    assert {str(path): found for path in ours if (found := BANNED.findall(path.read_text("utf-8")))} == {}


def test_the_documentation_uses_no_word_of_a_private_dialect():
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "config.example.toml"]
    found = {page.name: set(map(str.lower, BANNED.findall(page.read_text("utf-8")))) for page in pages}

    # A page may tell a person something.
    assert {name: words for name, words in found.items() if words - {"tell", "tells"}} == {}


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


def test_the_architecture_page_names_every_folder_of_modules():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    folders = {path.parent.relative_to(SOURCE).as_posix() for path in MODULES} - {"."}

    assert {folder for folder in folders if f"`{folder}`" not in page} == set()


def test_every_module_says_what_it_is():
    assert [str(path) for path in MODULES if not ast.get_docstring(tree(path))] == []


def test_no_class_name_is_defined_twice():
    places: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_test_patches_our_own_code():
    """What a test replaces is the outside: a setting of Python's own, a package that is not installed."""
    patching = re.compile(
        r"monkeypatch\.set(?:attr|item)\(\s*(?!(?:sys|sys\.modules|tempfile),)|import mock|unittest\.mock"
    )
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]

    assert [str(path) for path in tests if patching.search(path.read_text("utf-8"))] == []
