import re

import pytest
from tests.features.pruning.structure.pictures import drawn, expected, lines_of, redrawn

from kimi_proxy.features.pruning.engine import outline

QUIET = ["step done"] * 200

PYTHON = r"""
 |worker started
T|Traceback (most recent call last):
T|  File "/srv/app/reader.py", line 10, in read
T|    value = self.parse(text)
T|ValueError: not a number: 'x'
 |
T|During handling of the above exception, another exception occurred:
 |
T|Traceback (most recent call last):
T|  File "/srv/app/main.py", line 3, in <module>
T|    main()
T|  File "/srv/app/main.py", line 9, in main
T|    raise ReadFailed(name) from None
T|app.errors.ReadFailed: meter 7
c|worker stopped
"""

JAVA = r"""
 |Starting
T|Exception in thread "main" java.lang.IllegalStateException: no meter
T|	at org.example.Meter.read(Meter.java:42)
T|	at org.example.Main.main(Main.java:7)
T|Caused by: java.io.IOException: broken pipe
T|	at org.example.Pipe.write(Pipe.java:9)
T|	... 2 more
 |Stopped
"""

NODE = r"""
 |> node serve.js
T|/home/me/app/serve.js:31
T|  listen(port, );
T|               ^
 |
T|SyntaxError: Unexpected token )
T|    at createScript (vm.js:56:10)
T|    at Module._compile (module.js:549:28)
 |done
"""

DOTNET = r"""
 |Running
T|Unhandled exception. System.InvalidOperationException: Sequence contains no elements
T|   at System.Linq.ThrowHelper.ThrowNoElementsException()
T|   at Example.Program.Main(String[] args) in /src/Program.cs:line 12
 |Exited
"""

GO_PANIC = r"""
 |listening
T|panic: runtime error: index out of range [3] with length 3
 |
T|goroutine 1 [running]:
T|main.pick(...)
T|	/tmp/main.go:8
T|main.main()
T|	/tmp/main.go:12 +0x1d
T|exit status 2
"""

RUST_PANIC = r"""
 |running
T|thread 'main' panicked at src/main.rs:4:5:
T|called `Option::unwrap()` on a `None` value
T|note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
 |
 |finished
"""

PYTEST = r"""
 |collected 3 items
 |
 |tests/test_meter.py ..F
 |
F|=================================== FAILURES ===================================
F|__________________________________ test_value __________________________________
 |
F|    def test_value():
F|>       assert read() == 2
F|E       assert 1 == 2
F|E        +  where 1 = read()
 |
F|tests/test_meter.py:7: AssertionError
F|=========================== short test summary info ============================
F|FAILED tests/test_meter.py::test_value - assert 1 == 2
E|========================= 1 failed, 2 passed in 0.12s ==========================
"""

UNITTEST = r"""
 |..F
 |======================================================================
F|FAIL: test_value (tests.test_meter.MeterTest)
F|----------------------------------------------------------------------
F|Traceback (most recent call last):
F|  File "/src/tests/test_meter.py", line 7, in test_value
F|    self.assertEqual(read(), 2)
F|AssertionError: 1 != 2
 |
F|----------------------------------------------------------------------
 |Ran 3 tests in 0.001s
c|
E|FAILED (failures=1)
"""

RUSTC = r"""
 |   Compiling meter v0.1.0
F|error[E0308]: mismatched types
F| --> src/main.rs:4:18
F|  |
F|4 |     let x: i32 = "a";
F|  |            ---   ^^^ expected `i32`, found `&str`
F|  |
F|  = note: see more elsewhere
 |
E|error: aborting due to previous error
"""

GCC = r"""
 |gcc -c meter.c
F|meter.c:12:5: error: 'x' undeclared (first use in this function)
F|   12 |     x = 1;
F|      |     ^
 |cc -o meter meter.o
E|make: *** [Makefile:3: meter.o] Error 1
"""

TSC = r"""
 |$ tsc --noEmit
F|src/meter.ts(4,7): error TS2322: Type 'string' is not assignable to type 'number'.
 |$ next
"""

JAVAC = r"""
 |[INFO] Compiling 3 source files
F|[ERROR] /src/Meter.java:[12,8] cannot find symbol
F|[ERROR]   symbol:   class Reader
F|[ERROR]   location: package org.example
 |[INFO] done
"""

GO_TEST = r"""
 |=== RUN   TestValue
F|--- FAIL: TestValue (0.00s)
F|    meter_test.go:9: got 1, want 2
E|FAIL
E|FAIL	example.org/meter	0.003s
"""

JEST = r"""
 | PASS  test/other.test.js
E| FAIL  test/meter.test.js
F|  ● Meter › reads
 |
F|    expect(received).toBe(expected)
 |
F|    Expected: 2
F|    Received: 1
 |
F|      at Object.<anonymous> (test/meter.test.js:5:20)
 |
E|Tests:       1 failed, 3 passed, 4 total
"""

MOCHA = r"""
 |  3 passing (12ms)
F|  1 failing
 |
F|  1) Meter
F|       reads:
F|     AssertionError: expected 1 to equal 2
F|      at Context.<anonymous> (test/meter.js:9:12)
 |
 |$ exit
"""

CARGO = r"""
 |running 2 tests
 |test tests::one ... ok
E|test tests::two ... FAILED
c|
E|failures:
 |
F|---- tests::two stdout ----
F|thread 'tests::two' panicked at src/lib.rs:9:5:
F|assertion `left == right` failed
F|  left: 1
F| right: 2
 |
E|failures:
c|    tests::two
 |
E|test result: FAILED. 1 passed; 1 failed; 0 ignored
"""

GRADLE = r"""
 |> Task :compileJava
F|FAILURE: Build failed with an exception.
 |
F|* What went wrong:
F|Execution failed for task ':test'.
F|> There were failing tests. See the report at: file:///build/reports/index.html
 |
 |* Try:
 |> Run with --scan to get full insights.
 |
E|BUILD FAILED in 3s
"""

SUREFIRE = r"""
 |[INFO] Running org.example.MeterTest
F|[ERROR] Tests run: 3, Failures: 1, Errors: 0 <<< FAILURE! - in org.example.MeterTest
F|[ERROR] reads(org.example.MeterTest)  Time elapsed: 0.01 s  <<< FAILURE!
F|java.lang.AssertionError: expected:<2> but was:<1>
F|	at org.example.MeterTest.reads(MeterTest.java:14)
 |
 |[INFO] done
"""

NPM = r"""
 |> build
F|npm ERR! code ELIFECYCLE
F|npm ERR! errno 1
 |bye
"""

RSPEC = r"""
 |..F
 |
F|Failures:
 |
F|  1) Meter reads
F|     Failure/Error: expect(read).to eq(2)
 |
F|       expected: 2
F|            got: 1
F|     # ./spec/meter_spec.rb:5:in `block'
 |
 |Finished in 0.01 seconds
"""

PICTURES = {
    "python": PYTHON, "java": JAVA, "node": NODE, "dotnet": DOTNET, "go panic": GO_PANIC, "rust panic": RUST_PANIC,
    "pytest": PYTEST, "unittest": UNITTEST, "rustc": RUSTC, "gcc": GCC, "tsc": TSC, "javac": JAVAC,
    "go test": GO_TEST, "jest": JEST, "mocha": MOCHA, "cargo": CARGO, "gradle": GRADLE, "surefire": SUREFIRE,
    "npm": NPM, "rspec": RSPEC,
}  # fmt: skip


def tail(picture: str, height: int) -> str:
    return "\n".join(picture.split("\n")[-height:])


def without_context(picture: str) -> str:
    return re.sub(r"^c\|", " |", picture, flags=re.MULTILINE)


@pytest.mark.parametrize("tool", PICTURES)
def test_a_failure_stays_whole_as_told_by(tool: str) -> None:
    picture = expected(PICTURES[tool])
    lines = [*QUIET, *lines_of(picture)]
    height = picture.count("\n") + 1
    assert without_context(tail(drawn(lines, "logs"), height)) == without_context(picture)


@pytest.mark.parametrize("dress", ["\x1b[31m{}\x1b[0m", "2024-05-01T10:00:00.1234567Z {}", "[10:00:00] {}", "{}\r"])
@pytest.mark.parametrize("tool", PICTURES)
def test_neither_colours_nor_timestamps_hide_what_is_told_by(tool: str, dress: str) -> None:
    plain = lines_of(PICTURES[tool])
    dressed = [dress.format(line) for line in plain]
    blank = [not line for line in plain]
    kinds = {"failure", "traceback"}
    seen, seen_dressed = (
        [why if why in kinds else "" for why in outline([*QUIET, *lines], "logs").protected[len(QUIET) :]]
        for lines in (plain, dressed)
    )
    assert [d for d, b in zip(seen_dressed, blank, strict=True) if not b] == [
        s for s, b in zip(seen, blank, strict=True) if not b
    ]


def test_a_failure_becomes_a_block_named_by_what_it_says() -> None:
    found = outline(lines_of(PYTHON), "logs")
    assert [(b.kind, b.name, b.start, b.end) for b in found.blocks if b.name] == [
        ("traceback", "app.errors.ReadFailed: meter 7", 1, 14)
    ]


def test_each_test_of_a_pytest_report_is_a_block_in_it() -> None:
    found = outline(lines_of(PYTEST), "logs")
    assert [(b.kind, b.name, b.depth) for b in found.blocks if b.name == "test_value"] == [("failure", "test_value", 1)]


def test_a_line_with_an_error_stays_with_the_lines_around_it() -> None:
    lines = [*QUIET, "before", "ERROR: disk is full", "after", *QUIET]
    assert outline(lines, "logs").protected[199:204] == ("", "context", "error", "context", "")


@pytest.mark.parametrize(
    "line",
    [
        "0 errors, 3 warnings",
        "Tests run: 4, Failures: 0, Errors: 0",
        "writing to stderr",
        "compiled with -Werror",
        "error_log=/var/log/httpd",
        "no errors found",
        "exception: none",
    ],
)
def test_a_line_that_only_has_the_word_stays_without_context(line: str) -> None:
    assert outline([*QUIET, line, *QUIET], "logs").protected[199:202].count("context") == 0


@pytest.mark.parametrize(
    "line", ["5 passed, 0 failed", "failures: 0", "exit code 0", "process exited with 0", "no failures"]
)
def test_a_line_that_says_nothing_failed_may_go(line: str) -> None:
    assert not any(outline([*QUIET, line, *QUIET], "logs").protected)


@pytest.mark.parametrize(
    "line", ["2 failed", "exit code 1", "FATAL: no space", "Segmentation fault (core dumped)", "✗ reads"]
)
def test_a_line_that_says_something_failed_stays(line: str) -> None:
    assert outline([*QUIET, line, *QUIET], "logs").protected[200] == "error"


def test_error_exception_and_traceback_always_stay_while_they_are_few() -> None:
    said = ["0 errors", "ExceptionHandler registered", "traceback disabled"]
    lines = [*QUIET, *said, *QUIET]
    assert outline(lines, "logs").protected[200:203] == ("error",) * 3


def test_a_log_full_of_errors_keeps_the_first_and_last_of_each_kind() -> None:
    lines = [f"error: node {i} lost" if i % 2 else f"error: link {i} down" for i in range(1000)]
    found = outline(lines, "logs")
    assert [row for row, why in enumerate(found.protected) if why] == [0, 1, 2, 997, 998, 999]


def test_the_same_traceback_a_hundred_times_stays_twice() -> None:
    lines = (["tick"] * 5 + lines_of(PYTHON)[1:5]) * 100
    found = outline(lines, "logs")
    rows = [row for row, why in enumerate(found.protected) if why == "traceback"]
    assert rows == [5, 6, 7, 8, 896, 897, 898, 899]


def test_the_paragraph_an_error_announces_stays_with_it() -> None:
    lines = [*QUIET, "PackagesNotFoundError: not available:", "", "  - cython=0.25", "  - numpy=1.10", "", *QUIET]
    assert outline(lines, "logs").protected[200:205] == ("error", "", "context", "context", "")


def test_what_a_linter_prints_in_a_build_stays() -> None:
    picture = "\n".join([*[" |$ npm test"] * 100, " |", "D|lib/meter.js:3:10: Unnecessary return statement.", " |"])
    assert redrawn(picture, "logs") == picture


def test_a_blank_line_after_every_line_does_not_break_a_failure() -> None:
    lines = [line for text in lines_of(RUSTC) for line in (text, "")]
    found = outline([*QUIET, *lines], "logs").protected[len(QUIET) :]
    assert [why for why, line in zip(found, lines, strict=True) if line] == [""] + ["failure"] * 7 + ["error"]


def test_a_build_and_a_system_speak_differently() -> None:
    build = ["$ make", "gcc -c a.c", "[ 50%] Building a.o", "Downloading x", "ok"] * 20
    system = [f"Dec 10 06:55:{i:02d} host sshd[24200]: Connection closed by 10.0.0.{i}" for i in range(60)]
    assert [outline(lines, "logs").language for lines in (build, system, [])] == ["ci", "system", ""]


def test_quiet_lines_make_windows_no_longer_than_a_screen() -> None:
    found = outline(["a"] * 60 + [""] + ["b"] * 3, "logs")
    assert [(b.kind, b.start, b.end) for b in found.blocks] == [
        ("window", 0, 25),
        ("window", 25, 50),
        ("window", 50, 60),
        ("window", 61, 64),
    ]
