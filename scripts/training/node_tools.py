"""JavaScript and TypeScript projects with failures in them: for node --test, mocha, tsc, eslint and npm."""

import json
import random
import re
from pathlib import Path

from runs import Project, printed, write
from subjects import Fault, subjects

PACKAGES = "mocha@10 typescript@5 eslint@8"
FAILURES = {
    "assert.strictEqual(19 + 20 + 2, {n})": "a sum is not what was expected",
    "const found = undefined; found.save({n})": "undefined is used as if it were an object",
    "JSON.parse('[{n}, ')": "broken JSON is read",
    "require('fs').readFileSync('/nowhere/{n}.toml')": "a file does not exist",
    "assert.deepStrictEqual({{a: 1, b: [1, 2, {n}], c: 'x'}}, {{a: 1, b: [1, 2], c: 'y'}})": "two objects differ",
    "throw new Error('gave no answer within {n} s')": "the other side gave no answer in time",
    "noSuchFunction({n})": "a function is not defined",
    "new Array(-{n})": "the length of an array is invalid",
    "assert.match('the parcel was sent elsewhere', /shipped to {n}/)": "a text lacks the expected words",
    "assert.throws(() => {n})": "an expected exception does not come",
    "decodeURIComponent('%{n}%')": "an address is malformed",
}
CALM = (
    "assert.ok({n})",
    "console.log('error handler called {n} times, 0 failures')",
    "console.warn('retry {n} failed')",
)


def _suites(rng: random.Random, opens: str, test: str) -> tuple[dict[str, str], list[Fault], list[str]]:
    every = subjects(rng, rng.randint(40, 200))
    broken = every[: rng.randint(2, 8)]
    codes = dict(zip(broken, rng.sample(sorted(FAILURES), len(broken)), strict=True))
    rng.shuffle(every)
    files: dict[str, str] = {}
    faults = []
    for at in range(0, len(every), 8):
        group = every[at : at + 8]
        file = f"test/{group[0].noun}_{at}.test.js"
        bodies = [
            f"  {test}('{s.snake}', () => {{\n    {code.format(n=rng.randint(50, 900))}\n  }})\n"
            for s in group
            for code in [codes.get(s) or rng.choice(CALM)]
        ]
        files[file] = (
            f"const assert = require('assert')\n{opens}describe('{group[0].noun}', () => {{\n{''.join(bodies)}}})\n"
        )
        faults += [Fault(s, (s.snake,), FAILURES[codes[s]]) for s in group if s in codes]
    return files, faults, [s.words for s in every if s not in codes]


def node_test(folder: Path, rng: random.Random) -> Project:
    files, faults, quiet = _suites(rng, "const { describe, it } = require('node:test')\n", "it")
    write(folder, files)
    starts = re.compile(r"\s*(?:not )?ok \d|\s*# |\s*[✔✖▶ℹ] |test at |\d+\.\.\d|\s+\d+\.\.\d")
    failure = re.compile(r"not ok|✖|test at|# Subtest")
    how = rng.choice(("spec", "tap", "tap"))
    return Project(f"node --test --test-reporter={how} test/*.js", faults, starts, failure, quiet)


def _modules(folder: Path) -> Path:
    """The tools that npm brings, installed once for all projects beside it."""
    shared = folder.parent / "node"
    if not (shared / "node_modules").exists():
        shared.mkdir(exist_ok=True)
        printed(f"npm install --no-fund --no-audit {PACKAGES}", shared)
    return shared / "node_modules" / ".bin"


def mocha(folder: Path, rng: random.Random) -> Project:
    files, faults, quiet = _suites(rng, "", "it")
    write(folder, files)
    failure = re.compile(r"\s+\d+\) ")
    # A report has its number and the suite on one line, the test on the next.
    starts = re.compile(r"\s+[✓✔] |\s+\d+\) |\s+\d+ (?:passing|failing)|  \w")
    return Project(f"{_modules(folder)}/mocha 'test/*.js'", faults, starts, failure, quiet)


TYPES = {
    "const k: number = 'text'; return k + n": "text is given where a number is expected",
    "return n.upcase()": "a number has no such method",
    "return absentValue + n": "a name cannot be found",
    "return Math.max(n, 'x')": "an argument has the wrong type",
    "const o = { a: 1 }; return o.b + n": "a property does not exist",
    "return": "nothing is returned where a number is due",
    "const f = (a: number, b: number) => a + b; return f(n)": "a call has too few arguments",
}


def tsc(folder: Path, rng: random.Random) -> Project:
    every = subjects(rng, rng.randint(60, 160))
    broken = every[: rng.randint(3, 7)]
    codes = dict(zip(broken, rng.sample(sorted(TYPES), len(broken)), strict=True))
    rng.shuffle(every)
    calm = "const unused = 3; return n"
    files = {
        f"src/{s.snake}.ts": f"export function {s.snake}(n: number): number {{\n  {codes.get(s, calm)}\n}}\n"
        for s in every
    }
    write(folder, files)
    faults = [Fault(s, (f"src/{s.snake}.ts", s.snake), TYPES[codes[s]], f"src/{s.snake}.ts") for s in broken]
    how = rng.choice(("--pretty false --listFiles", "--pretty true --listFiles", "--pretty false --traceResolution"))
    command = f"{_modules(folder)}/tsc --strict --noUnusedLocals --noEmit --target es2020 {how} src/*.ts"
    quiet = [s.words for s in every if s not in codes]
    return Project(command, faults, re.compile(r"\S+\.ts|Found|File|=|\w+ "), re.compile("error"), quiet, alone=False)


LINTS = {
    "n = n": "something is assigned to itself",
    "if (n) {}": "a block is empty",
    "return absentValue": "a name is not defined",
    "debugger": "the debugger is left in the code",
    "switch (n) { case 1: n++; case 2: n-- }": "a case falls through to the next",
    "while (true) { n++ }": "a condition never changes",
    "return { a: 1, a: n }": "a key stands twice in an object",
    "const k = 1; k = n": "a constant is assigned to",
    "return; n++": "code cannot be reached",
}


def eslint(folder: Path, rng: random.Random) -> Project:
    every = subjects(rng, rng.randint(40, 120))
    broken = every[: rng.randint(3, 8)]
    codes = dict(zip(broken, rng.sample(sorted(LINTS), len(broken)), strict=True))
    rng.shuffle(every)
    calm = ("var unused = 3\n  var other = 4\n  return n", "return n == null ? 1 : 2")
    bodies = {s: codes.get(s) or rng.choice(calm) for s in every}
    settings = {"root": True, "extends": "eslint:recommended", "parserOptions": {"ecmaVersion": 2020}}
    rules = {"no-unused-vars": "warn", "eqeqeq": "warn", "no-var": "warn"}
    write(
        folder,
        {f"src/{s.snake}.js": f"function {s.snake}(n) {{\n  {body}\n}}\n{s.snake}(1)\n" for s, body in bodies.items()},
    )
    write(folder, {".eslintrc.json": json.dumps({**settings, "rules": rules})})
    faults = [Fault(s, (f"{s.snake}.js", s.snake), LINTS[codes[s]], f"{s.snake}.js") for s in broken]
    how = rng.choice(("stylish", "unix", "compact"))
    quiet = [s.words for s in every if s not in codes]
    return Project(f"{_modules(folder)}/eslint -f {how} src", faults, re.compile(r"\S"), re.compile("rror"), quiet)


def npm(folder: Path, rng: random.Random) -> Project:
    """Packages that are not there, versions that never were, scripts that fail, each asked for after the other."""
    every = subjects(rng, 8)
    faults, commands, scripts = [], [], {}
    for at, subject in enumerate(every[: rng.randint(3, 7)]):
        name = subject.snake.replace("_", "-")
        kind = rng.choice(("script", "missing", "folder"))
        if kind == "script":
            scripts[name] = f"node -e \"console.log('{subject.words}'); process.exit({at + 2})\""
            commands.append(f"npm run {name}")
        else:
            commands.append(f"npm install --no-save ./{name}" if kind == "folder" else f"npm run-script {name}")
        seen = {"script": f"a script ends with status {at + 2}", "missing": f"a script is missing ({at})"}
        faults.append(Fault(subject, (name,), seen.get(kind, f"a package of our own is not there ({at})")))
        commands.append("npm install --loglevel silly --offline --no-save --dry-run ; npm config ls -l")
    write(
        folder,
        {
            "ci.sh": "\n".join(commands),
            "package.json": json.dumps({"name": "app", "version": "1.0.0", "scripts": scripts}),
        },
    )
    failure = re.compile(r"npm ERR|npm error|\+ npm|> ")
    return Project("sh -x ci.sh", faults, re.compile(r"\S|\s"), failure, [s.words for s in every[7:]], alone=False)


TOOLS = {"node test": node_test, "mocha": mocha, "tsc": tsc, "eslint": eslint, "npm": npm}
