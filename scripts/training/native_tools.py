"""Projects in C, C++ and Rust with failures in them: for make, g++, CMake, rustc and cargo; and conflicts for git."""

import random
import re
from collections.abc import Mapping
from pathlib import Path

from runs import Project, write
from subjects import Fault, Subject, subjects

C_CALM = (
    "    return n + 1;",
    "    unsigned u = 3; if (n < u) return 0; return n;",
    "    int unused_value; return n * 2;",
    '    printf("%d errors\\n", n); return 0;',
)
C_FAULTS = {
    "    return n + missing_total;": "a name was never declared",
    "    int k = n\n    return k;": "a semicolon is forgotten",
    "    struct pair { int a; } p = { n }; return p + n;": "a structure is added to a number",
    '#include "absent_header.h"\n    return n;': "a header file cannot be found",
    "    struct unknown_shape s; return s.x;": "the size of a structure is unknown",
    "    return n(3);": "something that is no function is called",
    "    if (n > 2 { return 1; } return 0;": "a bracket is missing in a condition",
    "    const int k = 1; k = n; return k;": "a constant is written to",
    "    goto nowhere; return n;": "a jump has no target",
}


def _c_files(rng: random.Random, suffix: str) -> tuple[dict[str, str], list[Fault], list[Subject], list[Subject]]:
    every = subjects(rng, rng.randint(30, 140))
    broken = every[: rng.randint(2, 8)]
    codes = dict(zip(broken, rng.sample(sorted(C_FAULTS), len(broken)), strict=True))
    rng.shuffle(every)
    files, faults = {}, []
    for subject in every:
        code = codes.get(subject)
        body = code or rng.choice(C_CALM)
        file = f"src/{subject.snake}{suffix}"
        head = "#include <stdio.h>\n#include <string.h>\n"
        extra = f"static int again_{subject.snake}(int n) {{ return n; }}\n" if rng.random() < 0.5 else ""
        files[file] = f"{head}\n{extra}int {subject.snake}(int n)\n{{\n{body}\n}}\n"
        if code:
            faults.append(Fault(subject, (subject.snake, file), C_FAULTS[code], file))
    return files, faults, broken, every


def _warned(rng: random.Random) -> str:
    return rng.choice(("-Wall -Wextra", "-Wall -Wextra -Wpedantic", "-Wall", ""))


# What is printed for one file belongs together, from the call of the compiler on.
C_STARTS = re.compile(r"gcc |/\S+/c\+\+ |\[ *\d+%\]|g?make|--|cd |Makefile:|\d+ errors?")
C_TELLS = re.compile(r"error:|\*\*\*")


def make(folder: Path, rng: random.Random) -> Project:
    files, faults, broken, every = _c_files(rng, ".c")
    objects = " ".join(f"build/{s.snake}.o" for s in every)
    rule = "build/%.o: src/%.c\n\t@mkdir -p build\n\t$(CC) $(CFLAGS) -c -o $@ $<\n"
    flags = f"CC = gcc\nCFLAGS = -O0 -std=gnu17 {_warned(rng)} -Isrc -Iinclude -DVERSION=3 -fdiagnostics-color=never\n"
    main = "int main(void)\n{\n    return 0;\n}\n"
    write(
        folder, {**files, "src/main.c": main, "Makefile": f"{flags}app: {objects}\n\t$(CC) -o $@ $^ src/main.c\n{rule}"}
    )
    quiet = [s.words for s in every if s not in broken]
    return Project(f"make -k {rng.choice(('', '-j2 -O', '--trace'))} app", faults, C_STARTS, C_TELLS, quiet)


CPP_FAULTS = {
    "    std::vector<int> v{n}; return v.push_front(n);": "a container has no such method",
    "    std::string s = n; return s.size();": "a number cannot become a string",
    "    std::map<Odd, int> m; m[Odd{n}] = 1; return m.size();": "keys of a map cannot be compared",
    "    return std::accumulate_all(n);": "a name is not in the standard library",
    "    auto f = [](int a, int b) { return a + b; }; return f(n);": "a lambda gets too few arguments",
    "    std::unique_ptr<int> a(new int(n)); auto b = a; return *b;": "something that may only be moved is copied",
    "    std::vector<Odd> v(3, Odd{n}); std::sort(v.begin(), v.end()); return 0;": "things without an order are sorted",
    '    static_assert(sizeof(int) == 3, "odd"); return n;': "an assertion of the compiler does not hold",
}
CPP_HEADERS = ("algorithm", "map", "memory", "string", "vector")
CPP_HEAD = "".join(f"#include <{name}>\n" for name in CPP_HEADERS) + "struct Odd { int n; };\n"


def cmake(folder: Path, rng: random.Random) -> Project:
    """Configured, then built: few files, for the standard library's templates take their time."""
    every = subjects(rng, rng.randint(8, 14))
    broken = every[: rng.randint(2, 4)]
    codes = dict(zip(broken, rng.sample(sorted(CPP_FAULTS), len(broken)), strict=True))
    rng.shuffle(every)
    faults = [Fault(s, (s.snake, f"{s.snake}.cpp"), CPP_FAULTS[codes[s]], f"{s.snake}.cpp") for s in broken]
    files = {
        f"{s.snake}.cpp": f"{CPP_HEAD}int {s.snake}(int n)\n{{\n{codes.get(s, '    int unused; return n;')}\n}}\n"
        for s in every
    }
    names = " ".join(files)
    checks = "".join(
        f"check_include_file({name}.h HAVE_{name.upper()}_H)\n"
        for name in rng.sample(
            ("stdlib", "stdint", "zlib", "bzlib", "openssl/ssl", "unistd", "windows", "sys/epoll"), 6
        )
    )
    listed = (
        f"cmake_minimum_required(VERSION 3.10)\nproject(app)\ninclude(CheckIncludeFile)\n{checks.replace('/', '_')}"
    )
    write(
        folder,
        {
            **files,
            "CMakeLists.txt": f"{listed}add_library(app STATIC {names})\ntarget_compile_options(app PRIVATE -Wall)\n",
        },
    )
    quiet = [s.words for s in every if s not in broken]
    build = f"cmake --build build {rng.choice(('', '--verbose'))} -- -k"
    return Project(f"cmake -B build . ; {build}", faults, C_STARTS, C_TELLS, quiet)


RUST_FAULTS: Mapping[str, str] = {
    'let k: u32 = "text"; n + k': "text is given where a number is expected",
    "n + absent_value": "a value is not in scope",
    "let s = String::new(); let t = s; s.len() as u32 + n + t.len() as u32": "a value is used after it was moved",
    "n.no_such_method()": "a number has no such method",
    "let r: &u32; { let x = n; r = &x; } *r": "a borrowed value does not live long enough",
    "let x = 1; x = n; x": "an immutable variable is assigned twice",
    "match n { 0 => 1 }": "a match does not cover every value",
    "crate::nowhere::call(n)": "a module cannot be found",
}
RUST_CALM = ("n + 1", "let unused = 3; n", "let mut k = n; k", "{ fn never() {} n }")


def cargo_build(folder: Path, rng: random.Random) -> Project:
    every = subjects(rng, rng.randint(40, 120))
    broken = every[: rng.randint(2, 8)]
    codes = dict(zip(broken, rng.sample(sorted(RUST_FAULTS), len(broken)), strict=True))
    rng.shuffle(every)
    faults = [Fault(s, (s.snake, f"src/{s.snake}.rs"), RUST_FAULTS[codes[s]], f"src/{s.snake}.rs") for s in broken]
    files = {
        f"src/{s.snake}.rs": f"pub fn {s.snake}(n: u32) -> u32 {{\n    {codes.get(s) or rng.choice(RUST_CALM)}\n}}\n"
        for s in every
    }
    library = "".join(f"pub mod {s.snake};\n" for s in every)
    write(
        folder,
        {
            **files,
            "src/lib.rs": library,
            "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n',
        },
    )
    starts = re.compile(r"error|warning|\s+(?:Compiling|Checking)|For more|Caused")
    quiet = [s.words for s in every if s not in broken]
    how = rng.choice(("build", "check", "build -v"))
    return Project(f"cargo --offline --color never {how}", faults, starts, re.compile("error"), quiet)


PANICS = {
    "assert_eq!(19 + 20 + 2, {n});": "a sum is not what was expected",
    'let v: Vec<u32> = Vec::new(); println!("{{}}", v[{n}]);': "an index is beyond the end of a list",
    'let k: u32 = "x{n}".parse().unwrap(); assert!(k > 0);': "text cannot be read as a number",
    "let o: Option<u32> = None; o.unwrap();": "nothing is there where a value was expected",
    'std::fs::read("/nowhere/{n}").unwrap();': "a file does not exist",
    'panic!("gave no answer within {n} s");': "the other side gave no answer in time",
    'std::net::TcpStream::connect("127.0.0.1:9").expect("port {n}");': "the connection is refused",
    'let d = std::hint::black_box({n}) - {n}; println!("{{}}", 7 / d);': "something is divided by zero",
}


def cargo_test(folder: Path, rng: random.Random) -> Project:
    every = subjects(rng, rng.randint(60, 300))
    broken = every[: rng.randint(2, 8)]
    codes = dict(zip(broken, rng.sample(sorted(PANICS), len(broken)), strict=True))
    rng.shuffle(every)
    faults = [Fault(s, (s.snake,), PANICS[codes[s]]) for s in broken]
    calm = ("assert!({n} > 0);", 'println!("error handler called {n} times, 0 failures");', "let unused = {n};")
    body = "".join(
        f"#[test]\nfn {s.snake}() {{\n    {(codes.get(s) or rng.choice(calm)).format(n=rng.randint(50, 900))}\n}}\n"
        for s in every
    )
    write(folder, {"src/lib.rs": body, "Cargo.toml": '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n'})
    starts = re.compile(r"error|warning|\s+(?:Compiling|Running|Doc-tests)|test |---- |failures:|    \w+$")
    failure = re.compile(r"FAILED|---- |panicked|    \w+")
    quiet = [s.words for s in every if s not in broken]
    how = rng.choice(("", "-- --show-output", "-- --test-threads=1"))
    return Project(f"cargo --offline --color never test {how}", faults, starts, failure, quiet)


def git_merge(folder: Path, rng: random.Random) -> Project:
    """Two branches that changed the same lines of some of many files."""
    every = subjects(rng, rng.randint(80, 200))
    broken = every[: rng.randint(2, 8)]
    rng.shuffle(every)
    kinds = {s: rng.choice(("change", "delete")) for s in broken}
    seen = {"change": "both sides changed the same lines", "delete": "one side deleted what the other changed"}
    faults = [
        Fault(s, (f"{s.snake}.txt", s.snake), f"{seen[kinds[s]]} ({i})", f"{s.snake}.txt") for i, s in enumerate(broken)
    ]
    write(folder, {f"{s.snake}.txt": "".join(f"{s.noun} {n}\n" for n in range(9)) for s in every})
    ours = "; ".join(f"echo ours >> {s.snake}.txt" for s in every)
    theirs = "; ".join(
        f"git rm -q {s.snake}.txt"
        if kinds.get(s) == "delete"
        else f"echo theirs >> {s.snake}.txt"
        if s in kinds
        else f"sed -i 1s/^/x/ {s.snake}.txt"
        for s in every
    )
    quietly = "git -c user.name=a -c user.email=a@b -c commit.gpgsign=false"
    script = (
        f"git init -q . && git add . && {quietly} commit -qm one && git checkout -qb other && ({theirs}) && "
        f"git add -A && {quietly} commit -m two && git checkout -q - && ({ours}) && git add -A && "
        f"{quietly} commit -m three; {quietly} merge --verbose other; git status"
    )
    failure = re.compile("CONFLICT|both modified|deleted by")
    return Project(script, faults, re.compile(r"\s*\S"), failure, [s.words for s in every if s not in broken])


TOOLS = {
    "make": make,
    "cmake": cmake,
    "cargo build": cargo_build,
    "cargo test": cargo_test,
    "git merge": git_merge,
}
