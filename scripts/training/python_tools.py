"""Python projects with failures in them: for pytest, unittest, mypy, ruff, the compiler and pip."""

import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from runs import Project, write
from subjects import Fault, Subject, subjects

# What fails, and what a person sees of it.
FAILURES = {
    "total = sum([19, 20, 2])\n    assert total == {n}": "a sum is not what was expected",
    "settings = {{'host': 'a', 'port': {n}}}\n    settings['retries']": "a setting is missing from the dictionary",
    "share = {n} / len([])": "something is divided by zero",
    "import socket\n    socket.create_connection(('127.0.0.1', 9), {n})": "the connection is refused",
    "open('/nowhere/{n}.toml').read()": "a file does not exist",
    "found = None\n    found.save({n})": "None is used as if it were an object",
    "int('twelve{n}')": "text cannot be read as a number",
    "import json\n    json.loads('[{n}, ')": "broken JSON is read",
    "b'caf\\xe9 {n}'.decode('utf-8')": "bytes are not valid UTF-8",
    "raise TimeoutError('no answer within {n} s')": "the other side gave no answer in time",
    "left = list(range({n}))\n    assert left == [*left[:-3], 7, 7, 7]": "two lists differ at the end",
    "raise PermissionError(13, 'Permission denied', '/var/spool/{n}')": "we are not allowed to write",
    "import decimal\n    decimal.Decimal('{n}').quantize(decimal.Decimal('x'))": "a decimal number is invalid",
    "def again(n):\n        return again(n + 1)\n    again({n})": "a function calls itself without end",
    "assert 'shipped to {n}' in 'the parcel was sent to another place entirely'": "a text lacks the expected words",
}
NOISE = (
    "print('loaded', {n}, 'rows from the error log, 0 errors')",
    "import logging\n    logging.getLogger('app').warning('retrying request %d after a failed attempt', {n})",
    "import warnings\n    warnings.warn('the old way of counting {n} is deprecated', DeprecationWarning)",
    "assert {n} == {n}",
    "pass",
)


def _body(subject: Subject, code: str, rng: random.Random, prefix: str = "def test_", args: str = "") -> str:
    return f"{prefix}{subject.snake}({args}):\n    {code.format(n=rng.randint(11, 997))}\n\n\n"


def _tests(rng: random.Random) -> tuple[dict[str, str], list[Fault], list[str]]:
    """Files of tests, most of which pass."""
    every = subjects(rng, rng.randint(40, 160))
    broken = set(rng.sample(range(len(every)), rng.randint(2, 8)))
    codes = iter(rng.sample(sorted(FAILURES), len(broken)))
    files: dict[str, str] = {}
    faults: list[Fault] = []
    for at, subject in enumerate(every):
        file = f"tests/test_{every[at - at % 9].noun}_{at // 9}.py"
        if at in broken:
            code = next(codes)
            faults.append(Fault(subject, (f"test_{subject.snake}",), FAILURES[code], file))
            files[file] = files.get(file, "") + _body(subject, code, rng)
        else:
            noisy = f"@pytest.mark.parametrize('n', range({rng.randint(2, 14)}))\n" if rng.random() < 0.4 else ""
            body = _body(subject, rng.choice(NOISE), rng, args="n" if noisy else "")
            files[file] = files.get(file, "") + noisy + body
    files = {name: "import pytest\n\n\n" + text for name, text in files.items()}
    return files, faults, [s.words for i, s in enumerate(every) if i not in broken]


def pytest(folder: Path, rng: random.Random) -> Project:
    files, faults, quiet = _tests(rng)
    write(folder, files)
    how = rng.choice(("-v", "-v -rA", "-q", "-v --tb=long", "-v --tb=short -s", "-vv --durations=20", "-v --tb=native"))
    starts = re.compile(r"_{3,} |={3,} |\S+::\S+ |FAILED |ERROR |PASSED |\d+ (?:failed|passed)|[\d.]+s (?:call|setup)")
    failure = re.compile(r"FAILED|ERROR|_{3,} ")
    return Project(f"{sys.executable} -m pytest -p no:cacheprovider {how} tests", faults, starts, failure, quiet)


def unittest(folder: Path, rng: random.Random) -> Project:
    files, faults, quiet = _tests(rng)
    methods = {name: text.replace("import pytest\n", "import unittest") for name, text in files.items()}
    cut = re.compile(r"@pytest.*\n|^import unittest", re.MULTILINE)
    classes = {
        name: "import unittest\n\n\nclass Tests(unittest.TestCase):\n"
        + re.sub(
            r"^(?=.)", "    ", re.sub(r"(def test_\w+)\(\w*\)", r"\1(self)", cut.sub("", text)), flags=re.MULTILINE
        )
        for name, text in methods.items()
    }
    write(folder, {**classes, "tests/__init__.py": ""})
    starts = re.compile(r"={10,}$|Ran \d|test_\w+ \(.*\.\.\.|FAILED \(")
    failure = re.compile(r"FAIL|ERROR")
    how = rng.choice(("-v", "-v -b", "-v"))
    return Project(f"{sys.executable} -m unittest discover {how} -t . -s tests", faults, starts, failure, quiet)


TYPING = {
    "    return len(name) + 'px'": "a number is added to text",
    "    return name.upcase()": "a string has no such method",
    "    count: int = name\n    return count": "text is assigned to a whole number",
    "    return int(name, 2, 3)": "a call has too many arguments",
    "    return [n for n in 5]": "a number is iterated over",
    "    return {'a': 1}[name].real.x": "an attribute of a number is unknown",
    "    return missing_name_of(name)": "a name is not defined",
    "    for x in name:\n        return x": "a path returns nothing",
}


def _modules(rng: random.Random, kinds: dict[str, str], calm: Sequence[str]) -> tuple[dict, list[Fault], list[str]]:
    """One module for each subject."""
    every = subjects(rng, rng.randint(60, 200))
    broken = set(rng.sample(range(len(every)), rng.randint(2, 8)))
    codes = iter(rng.sample(sorted(kinds), min(len(kinds), len(broken))))
    files, faults = {}, []
    for at, subject in enumerate(every):
        file = f"app/{subject.snake}.py"
        code = next(codes, None) if at in broken else None
        if code is not None:
            faults.append(Fault(subject, (file, subject.snake), kinds[code], file))
        files[file] = f"def {subject.snake}(name: str) -> int:\n{code or rng.choice(calm)}\n"
    return files, faults, [s.words for i, s in enumerate(every) if i not in broken]


def mypy(folder: Path, rng: random.Random) -> Project:
    calm = ("    return len(name)", "    print(name)\n    return 1", "    y = []\n    return len(y)")
    files, faults, quiet = _modules(rng, TYPING, calm)
    write(folder, files)
    how = rng.choice(("--pretty", "--show-error-context --verbose", "--strict -v --pretty"))
    starts = re.compile(r"\S+\.py:\d+|LOG: |Found \d")
    failure = re.compile(r"error:|note:")
    return Project(
        f"{sys.executable} -m mypy --cache-dir=/dev/null {how} app", faults, starts, failure, quiet, alone=False
    )


LINTS = {
    "    import os, sys\n    return len(name)": "several modules are imported on one line",
    "    if name == None:\n        return 0\n    return 1": "something is compared with None by equality",
    "    l = 1\n    return l": "a variable has a name that looks like a digit",
    "    try:\n        return 1\n    except:\n        return 0": "everything that may be raised is caught",
    "    f = lambda: 0\n    return f()": "a lambda is given a name",
    "    assert (name, 'is empty')\n    return 1": "an assertion on a tuple is always true",
    "    return unheard_of(name)": "a name is not defined",
}


def ruff(folder: Path, rng: random.Random) -> Project:
    calm = ("    unused = 3\n    return len(name)", "    return len(name)", "    return len(name)")
    files, faults, quiet = _modules(rng, LINTS, calm)
    write(folder, files)
    how = rng.choice(("--output-format full -v", "--output-format concise -v", "--output-format full"))
    starts = re.compile(r"[A-Z]+\d+ |invalid-syntax|\S+\.py:\d+|\[\d{4}|Found \d")
    failure = re.compile(r"[A-Z]+\d+ |invalid-syntax")
    return Project(
        f"{sys.executable} -m ruff check --no-cache --isolated --select E,F,W,B {how} app",
        faults,
        starts,
        failure,
        quiet,
        alone=False,
    )


SYNTAX = {
    "    return (len(name)": "a bracket is never closed",
    "    return 'name": "a string has no end",
    "  x = 1\n    return x": "the indentation is wrong",
    "    def = 3\n    return 1": "a keyword is used as a name",
    "    return 1 +": "an expression breaks off",
    "    return 08": "a number has a leading zero",
    "    x = yield = 3": "something is assigned to yield",
}


def compileall(folder: Path, rng: random.Random) -> Project:
    files, faults, quiet = _modules(rng, SYNTAX, ("    return len(name)",))
    write(folder, files)
    starts = re.compile(r"Compiling |Listing |\*\*\* ")
    return Project(f"{sys.executable} -m compileall app", faults, starts, re.compile("."), quiet)


def pip(folder: Path, rng: random.Random) -> Project:
    """Requirements that cannot be fulfilled, one after the other, between some that are there."""
    every = subjects(rng, 8)
    faults, commands = [], []
    for at, subject in enumerate(every[: rng.randint(3, 7)]):
        name = subject.snake.replace("_", "-")
        wanted, symptom = rng.choice(
            (
                (f"{name}=={at}.7", f"no version of a package is there, number {at}"),
                (f"./{name}", f"a local package is not installable, number {at}"),
                (f"-r {name}.txt", f"a file of requirements cannot be opened, number {at}"),
            )
        )
        faults.append(Fault(subject, (name,), symptom, name))
        commands.append(f"pip install --dry-run --retries 0 --timeout 2 {wanted}")
        commands.append(
            f"pip --verbose install --dry-run --retries 0 --timeout 2 {rng.choice(('six', 'pip', 'setuptools'))}"
        )
    script = "\n".join(f"python -m {command}" for command in commands)
    write(folder, {"ci.sh": script})
    starts = re.compile(r"\+ |Looking in|Collecting|ERROR|Requirement|Would|Could not|Using|\S")
    failure = re.compile(r"ERROR|WARNING|\+ ")
    return Project("sh -x ci.sh", faults, starts, failure, [s.words for s in every[7:]])


TOOLS = {"pytest": pytest, "unittest": unittest, "mypy": mypy, "ruff": ruff, "compileall": compileall, "pip": pip}
