"""Mutation testing: how many small changes of the source do its tests notice?

A group is a few modules and the tests beside them. Of all mutants a sample is drawn by a fixed seed; each is tried in a
forked process that imports the changed module in place of the real one. One that nothing notices is printed."""

import argparse
import ast
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "kimi_proxy"
CPU_S = 120
WALL_S = 900

GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "engine": (
        ("features/pruning/engine.py", "features/pruning/select.py"),
        (
            *("tests/features/pruning/test_select.py", "tests/features/pruning/test_engine.py"),
            *("tests/features/pruning/test_reranking.py", "tests/properties/test_pruning.py"),
        ),
    ),
    "store": (
        ("services/store/sqlite/originals.py", "services/store/sqlite/decisions.py"),
        ("tests/services/store/contract", "tests/services/store/sqlite"),
    ),
    "masking": (
        ("features/masking.py",),
        ("tests/features/test_masking.py", "tests/properties/test_masking.py"),
    ),
    "guard": (
        ("api/guard.py",),
        ("tests/api/test_guard.py", "tests/api/test_guard_limits.py", "tests/api/test_owner.py"),
    ),
    "paths": (
        ("proxy/files.py", "features/gateway.py"),
        (
            *("tests/proxy/test_workspace.py", "tests/proxy/test_textfile.py", "tests/proxy/test_spool.py"),
            *("tests/features/test_paths.py", "tests/features/test_gateway.py", "tests/features/test_circuit.py"),
        ),
    ),
}

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of a module, by the place of a function in its tree and of a node in the function."""

    file: Path
    text: str = field(repr=False)  # as it was when all mutants were found
    line: int
    what: str
    function: int
    node: int

    @property
    def module(self) -> str:
        return ".".join(("kimi_proxy", *self.file.relative_to(SOURCE).with_suffix("").parts))

    @property
    def source(self) -> str:
        """The module as it is with the change."""
        tree = ast.parse(self.text)
        _change(_at(_at(tree, self.function), self.node))
        return ast.unparse(ast.fix_missing_locations(tree))


def mutants(file: Path) -> list[Mutant]:
    """Return every change of one operator, constant or condition inside of functions."""
    found: dict[tuple[int, int, str], Mutant] = {}
    text = file.read_text("utf-8")
    for place, function in enumerate(ast.walk(ast.parse(text))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            words = set(_words(function))
            for at, node in enumerate(ast.walk(function)):
                what = _what(node)
                if what and node not in words:
                    line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
                    # A function inside of another is walked twice.
                    found.setdefault((line, column, what), Mutant(file, text, line, what, place, at))
    return list(found.values())


def _at(tree: ast.AST, at: int) -> ast.AST:
    return next(node for place, node in enumerate(ast.walk(tree)) if place == at)


def _words(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of annotations, of defaults, and of what is logged or said in an error."""
    for node in ast.walk(function):
        is_log = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log.")
        if is_log or isinstance(node, ast.arguments | ast.JoinedStr):
            yield from ast.walk(node)
        for annotation in (getattr(node, "returns", None), getattr(node, "annotation", None)):
            if isinstance(annotation, ast.AST):
                yield from ast.walk(annotation)


def _what(node: ast.AST) -> str:
    """Return what can be changed in a node; empty if nothing can."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in _COMPARISONS:
            return f"{type(operator).__name__} → {_COMPARISONS[type(operator)].__name__}"
        case ast.BoolOp():
            return "or → and" if isinstance(node.op, ast.Or) else "and → or"
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            return f"{type(node.op).__name__} → {_ARITHMETIC[type(node.op)].__name__}"
        case ast.UnaryOp(op=ast.Not()):
            return "not x → x"
        case ast.Constant(value=bool(value)):
            return f"{value} → {not value}"
        case ast.Constant(value=int(value)):
            return f"{value} → {value + 1}"
        case ast.If() | ast.IfExp() | ast.While():
            return "if x → if not x"
        case ast.Break() | ast.Continue():
            return "break ↔ continue"
    return ""


def _change(node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops = [_COMPARISONS[type(node.ops[0])]()]
        case ast.BoolOp():
            node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
        case ast.BinOp():
            node.op = _ARITHMETIC[type(node.op)]()
        case ast.UnaryOp():
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int(value)):
            node.value = value + 1
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Break():
            node.__class__ = ast.Continue  # type: ignore[assignment]
        case ast.Continue():
            node.__class__ = ast.Break  # type: ignore[assignment]


class _Changed(MetaPathFinder, Loader):
    """Imports the mutant in place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._mutant.module:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = self
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._mutant.source, str(self._mutant.file), "exec"), module.__dict__)


def is_noticed(mutant: Mutant | None, tests: Sequence[str]) -> bool:
    """Return whether the tests fail, or never end, with the mutant in place; without one they have to pass."""
    child = os.fork()
    if child == 0:
        _run(mutant, tests)
    deadline = time.monotonic() + WALL_S
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True
        time.sleep(0.05)
    return ended[1] != 0


def _run(mutant: Mutant | None, tests: Sequence[str]) -> None:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nowhere, fd)
    if mutant is not None:
        sys.meta_path.insert(0, _Changed(mutant))
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    try:
        import pytest

        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", *tests])
    except BaseException:  # noqa: BLE001 - the import of a broken module
        code = 1
    os._exit(int(code))


def measure(group: str, sample: int, seed: int) -> tuple[int, int]:
    """Print the mutants of a sample that survive; return how many there were, and how many were noticed."""
    files, tests = GROUPS[group]
    every = [mutant for file in files for mutant in mutants(SOURCE / file)]
    chosen = random.Random(seed).sample(every, min(sample, len(every)))
    if is_noticed(None, tests):
        raise SystemExit(f"{group}: the tests fail without a change: {' '.join(tests)}")
    noticed = 0
    for mutant in chosen:
        if is_noticed(mutant, tests):
            noticed += 1
        else:
            print(f"survived: {mutant.file.relative_to(ROOT)}:{mutant.line}: {mutant.what}", flush=True)
    share = 100 * noticed / len(chosen)
    print(f"{group}: {noticed} of {len(chosen)} noticed ({share:.0f} %), of {len(every)} mutants in all", flush=True)
    return len(chosen), noticed


def main() -> None:
    options = argparse.ArgumentParser(prog="scripts/mutate")
    options.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    options.add_argument("--sample", type=int, default=60, help="mutants of each group")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    import msgspec  # noqa: F401 - loaded once, before the forks
    import numpy  # noqa: F401

    totals = [measure(group, given.sample, given.seed) for group in given.groups or GROUPS]
    tried, noticed = (sum(column) for column in zip(*totals, strict=True))
    print(f"all: {noticed} of {tried} noticed ({100 * noticed / tried:.0f} %)")


if __name__ == "__main__":
    main()
