"""What a build prints before it fails: commands that succeed, and say much about it."""

import sys
from pathlib import Path

from runs import printed, write

_STDLIB = Path(sys.modules["json"].__file__ or "").parents[1]
_C_FILES = {f"part_{n}.c": f"int part_{n}(int n)\n{{\n    int spare; return n + {n};\n}}\n" for n in range(60)}
_RULES = {
    "Makefile": "all: $(patsubst %.c,%.o,$(wildcard *.c))\n%.o: %.c\n\tgcc -Wall -O0 -c -o $@ $<\n",
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(app C)\nfile(GLOB S *.c)\nadd_library(app ${S})\n",
}
_CHECKS = "".join(f"    def test_part_{n}(self):\n        self.assertTrue({n + 1})\n" for n in range(150))
_TESTS = {"test_parts.py": f"import unittest\n\n\nclass Parts(unittest.TestCase):\n{_CHECKS}"}
_CRATE = {
    "Cargo.toml": '[package]\nname = "parts"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "".join(f"#[test]\nfn part_{n}() {{\n    let spare = {n};\n}}\n" for n in range(120)),
}
_SUITE = {
    "parts.test.js": "const { it } = require('node:test')\n"
    + "".join(f"it('part {n}', () => console.log('no error in {n}'))\n" for n in range(120))
}
_CLASSES = {f"Part{n}.java": f"class Part{n} {{ java.util.List l = java.util.List.of({n}); }}\n" for n in range(30)}

# For each half of the tools its own.
COMMANDS = (
    (
        ("make", {**_C_FILES, **_RULES}),
        ("cmake -B build . && cmake --build build --verbose", {**_C_FILES, **_RULES}),
        ("python3 -m unittest -v", _TESTS),
        (f"cp -r {_STDLIB}/email {_STDLIB}/json . && python3 -m compileall email json && tar -cvf x.tar email", {}),
        ("git init . && git add -v . && git -c user.name=a -c user.email=a@b commit -m parts", _C_FILES),
        ("python3 -m pip list -v", {}),
    ),
    (
        ("cargo --offline build -v && cargo --offline test", _CRATE),
        ("node --test --test-reporter=spec", _SUITE),
        ("node --test --test-reporter=tap", _SUITE),
        ("javac -Xlint:all -verbose -d out *.java", _CLASSES),
        ("npm config ls -l", {}),
        ("mvn -v && java -XshowSettings:all -version && java --list-modules", {}),
    ),
)


def printed_before(below: Path) -> tuple[list[str], ...]:
    """For each half of the tools what its commands print, each after its own line."""
    found: tuple[list[str], ...] = ([], [])
    for half, commands in enumerate(COMMANDS):
        for at, (command, files) in enumerate(commands):
            folder = below / f"prelude-{half}-{at}"
            folder.mkdir()
            write(folder, files)
            found[half].append(f"+ {command}\n{printed(command, folder)}")
    return found
