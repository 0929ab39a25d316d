"""What the guides say of the code is so, and a newcomer's grep finds one place. Wording is for readers to judge."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kimi_proxy"
MODULES = sorted(SOURCE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def test_the_architecture_page_has_a_short_glossary():
    page = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    terms = re.findall(r"^\| ([^|]+?) \|", page.partition("## Glossary")[2], re.M)[2:]

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
    folders = {folder for folder in folders if not folder.startswith("addons/")}  # each of them may be deleted

    assert {folder for folder in folders if f"`{folder}`" not in page} == set()


def test_every_module_that_holds_anything_says_what_it_is():
    full = [path for path in MODULES if path.read_text("utf-8").strip()]
    assert [str(path) for path in full if not ast.get_docstring(tree(path))] == []


def _is_parallel(node: ast.AST) -> bool:
    """Return whether one statement assigns unrelated values; swaps, unpacking and constants are no such."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple):
        return False
    is_constant = all(isinstance(one, ast.Constant | ast.BinOp | ast.UnaryOp) for one in node.value.elts)
    names = {ast.unparse(one) for one in target.elts}
    values = {ast.unparse(one) for one in node.value.elts}
    return not is_constant and not names & values


def test_a_statement_assigns_one_value():
    packed = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(tree(path))
        if _is_parallel(node)
    ]
    assert packed == []


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
