"""Mutation testing: how many small changes of the source do its tests notice?

A group is a few modules and the tests beside them, which are collected once and run once to see which lines each of
them runs. Of all mutants a sample is drawn by a fixed seed; each is tried in a forked process that puts the changed
function in place of the real one and runs the tests that pass its line, quick ones first. One that nothing notices is
printed, unless `equivalent_mutants.txt` says why nothing can."""

import argparse
import ast
import gc
import importlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kimi_proxy"
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
CPU_S = 30  # more than a loop without end is given to be one; all tests of a group together take less
WALL_S = 300  # or five times what all tests took without a change, where the machine is that busy
QUIETLY = ("-p", "no:cacheprovider", "-p", "no:terminal")

GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "engine": (
        ("features/pruning/engine.py", "features/pruning/select.py"),
        (
            *("tests/features/pruning/test_select.py", "tests/features/pruning/test_engine.py"),
            *("tests/features/pruning/test_engine_limits.py", "tests/features/pruning/test_errors.py"),
            *("tests/features/pruning/test_use.py", "tests/features/pruning/test_frames.py"),
            "tests/features/pruning/test_reranking.py",
            "tests/properties/test_pruning.py",
        ),
    ),
    "store": (
        (
            *("services/store/sqlite/originals.py", "services/store/sqlite/tables.py"),
            "services/store/sql/decisions.py",
        ),
        ("tests/services/store/contract", "tests/services/store/sqlite"),
    ),
    "masking": (
        ("features/masking.py",),
        (
            *("tests/features/test_masking.py", "tests/features/test_long_strings.py"),
            "tests/properties/test_masking.py",
        ),
    ),
    "guard": (
        ("api/guard.py",),
        (
            *("tests/api/test_guard.py", "tests/api/test_guard_limits.py", "tests/api/test_owner.py"),
            *("tests/team/test_team.py", "tests/team/test_login.py", "tests/api/test_live.py"),
        ),
    ),
    "paths": (
        ("proxy/files.py", "features/gateway.py"),
        (
            *("tests/proxy/test_workspace.py", "tests/proxy/test_textfile.py", "tests/proxy/test_spool.py"),
            *("tests/features/test_paths.py", "tests/features/test_gateway.py", "tests/features/test_circuit.py"),
            *("tests/services/gateway/test_gateway.py", "tests/services/gateway/test_gateway_messages.py"),
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
    def lines(self) -> range:
        """The lines of the changed expression or condition, which a test has to run to notice anything."""
        node = _at(_at(ast.parse(self.text), self.function), self.node)
        of = node.test if isinstance(node, ast.If | ast.IfExp | ast.While) else node
        return range(self.line, (getattr(of, "end_lineno", None) or self.line) + 1)

    @property
    def code(self) -> CodeType:
        """The module as it is with the change."""
        tree = ast.parse(self.text)
        _change(_at(_at(tree, self.function), self.node))
        return compile(ast.fix_missing_locations(tree), str(self.file), "exec")

    def __str__(self) -> str:
        """Return the change and the line that has it, as `equivalent_mutants.txt` names them."""
        line = self.text.split("\n")[self.line - 1].strip()
        return f"{self.file.relative_to(SOURCE)} | {line} | {self.what}"


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


Lines = dict[str, dict[int, set[str]]]  # of a file: which tests run each of them


class Group:
    """A pytest plugin that tries mutants on the tests that were collected, in place of running them."""

    def __init__(self, name: str, files: Sequence[str], sample: int, seed: int) -> None:
        self._name = name
        every = [mutant for file in files for mutant in mutants(SOURCE / file)]
        self._all = len(every)
        self._chosen = random.Random(seed).sample(every, min(sample, len(every)))
        self._phase = ""
        self._failed: list[str] = []
        self.noticed = self.late = self.equivalent = 0

    @property
    def tried(self) -> int:
        return len(self._chosen)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "postgres" not in item.nodeid]  # SQLite's answers are judged

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for file in {mutant.file for mutant in self._chosen}:  # some are loaded only when they are needed
            importlib.import_module(".".join(("kimi_proxy", *file.relative_to(SOURCE).with_suffix("").parts)))
        began = time.monotonic()
        lines, seconds = self._covered(session)
        wall_s = max(WALL_S, 5 * (time.monotonic() - began))
        reasons = _equivalent()
        for mutant in self._chosen:
            tests = set().union(*(lines.get(str(mutant.file), {}).get(line, set()) for line in mutant.lines))
            items = [item for item in session.items if item.nodeid in tests or _file(item) in tests]
            items.sort(key=lambda item: seconds[item.nodeid])
            passed = _passes_all(mutant, session, items, wall_s) if items else True
            if not passed:
                self.noticed += 1
                self.late += passed is None
            elif str(mutant) in reasons:
                self.equivalent += 1
            else:
                said = "survived" if items else "run by no test"
                print(f"{said}: {mutant.file.relative_to(ROOT)}:{mutant.line}: {mutant}", flush=True)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self._phase = "setup"
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        self._phase = "call"
        yield

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        self._phase = "teardown"
        yield

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        print(excinfo.value)  # why there are no figures

    def report(self) -> str:
        """Return the group's figures; what is equivalent is left out of the share."""
        real = self.tried - self.equivalent
        share = f"{100 * self.noticed / real:.0f} %" if real else "-"
        return (
            f"{self._name}: {self.noticed} of {real} noticed ({share}), {self.late} of these by never ending;"
            f" {self.equivalent} more change nothing, of {self._all} mutants in all"
        )

    def _covered(self, session: pytest.Session) -> tuple[Lines, Mapping[str, float]]:
        """Return which lines each test runs, and how long each takes; end if one fails without any change."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:

            def run() -> bool:
                Path(file.name).write_text(json.dumps((*self._traced(session), self._failed)))
                return True

            if not _passes(run, 20 * CPU_S, 60 * CPU_S):
                pytest.exit(f"{self._name}: the tests take too long", returncode=1)
            ran, seconds, failed = json.loads(Path(file.name).read_text())
            if failed:
                pytest.exit(f"{self._name}: without a change fail {' '.join(failed)}", returncode=1)
        lines: Lines = defaultdict(lambda: defaultdict(set))
        for path, line, test in ran:
            lines[path][line].add(test)
        return lines, seconds

    def _traced(self, session: pytest.Session) -> tuple[list[tuple[str, int, str]], dict[str, float]]:
        """Run all tests; what fixtures run is taken as run by all tests of the file, which may share them."""
        files = {str(mutant.file) for mutant in self._chosen}
        ran: set[tuple[str, int, str]] = set()
        seconds: dict[str, float] = {}
        item = session.items[0]

        def on_call(frame: FrameType, event: str, arg: object) -> Callable[..., object] | None:
            return on_line if frame.f_code.co_filename in files else None

        def on_line(frame: FrameType, event: str, arg: object) -> Callable[..., object]:
            by = item.nodeid if self._phase == "call" else _file(item)
            ran.add((frame.f_code.co_filename, frame.f_lineno, by))
            return on_line

        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            threading.settrace(on_call)
            sys.settrace(on_call)
            began = time.process_time()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = time.process_time() - began
        sys.settrace(None)
        return list(ran), seconds


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _equivalent() -> set[str]:
    """Return the mutants that change nothing that a test could see; a reason stands below each."""
    lines = EQUIVALENT.read_text("utf-8").split("\n")
    return {line for line in lines if line and not line.startswith((" ", "#"))}


def _passes_all(mutant: Mutant, session: pytest.Session, items: Sequence[pytest.Item], wall_s: float) -> bool | None:
    """Return whether all of the tests pass with the mutant in place; None if they never end."""

    def run() -> bool:
        _put_in_place(mutant.code)
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                return False
        return True

    return _passes(run, CPU_S, wall_s)


def _put_in_place(module: CodeType) -> None:
    """Give every function of the changed module its code in the changed form."""
    gc.unfreeze()  # what conftest.py leaves out of collections is not among the objects otherwise
    changed = {(code.co_qualname, code.co_firstlineno): code for code in _codes(module)}
    for function in [found for found in gc.get_objects() if isinstance(found, FunctionType)]:
        old = function.__code__
        new = changed.get((old.co_qualname, old.co_firstlineno))
        if old.co_filename == module.co_filename and new is not None:
            function.__code__ = new


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _passes(run: Callable[[], bool], cpu_s: int, wall_s: float) -> bool | None:
    """Return what `run` does in a forked process, False if it raises; None if it had to be ended."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        code = 1
        try:
            code = 0 if run() else 1
        finally:
            os._exit(code)
    deadline = time.monotonic() + wall_s
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.02)
    return None if os.WIFSIGNALED(ended[1]) else ended[1] == 0


def measure(name: str, sample: int, seed: int) -> Group:
    """Print the mutants of a sample that survive, and the figures of the group."""
    files, tests = GROUPS[name]
    group = Group(name, files, sample, seed)
    options = ["-o", "addopts=--import-mode=importlib -p no:schemathesis", *QUIETLY, *tests]
    code = pytest.main(options, plugins=[group])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"{name}: the tests cannot be run")
    print(group.report(), flush=True)
    return group


def main() -> None:
    options = argparse.ArgumentParser(prog="scripts/mutate")
    options.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    options.add_argument("--sample", type=int, default=60, help="mutants of each group")
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    groups = [measure(name, given.sample, given.seed) for name in given.groups or GROUPS]
    noticed, real = sum(group.noticed for group in groups), sum(group.tried - group.equivalent for group in groups)
    print(f"all: {noticed} of {real} noticed ({100 * noticed / max(real, 1):.0f} %)")


if __name__ == "__main__":
    main()
