"""No pattern of the package takes more than linear time, whatever it is given."""

import importlib
import os
import pkgutil
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support import adversarial

import kimi_proxy
from kimi_proxy.features.pruning.structure import languages

SOURCE = Path(kimi_proxy.__file__).parent
METHODS = ("match", "search", "fullmatch", "findall", "finditer", "sub", "subn", "split")
FOUND_BY = {"findall": "search", "finditer": "search", "sub": "search", "subn": "search", "split": "search"}

SHORT = 28  # exponential time shows here: 10 ms for it is too long
LONG = 4096  # quadratic time looks at eight million characters here
LONGER = 4 * LONG  # and takes sixteen times as long here, linear time four times
TOO_LONG_S = 0.01
NOTHING_S = 0.0002
IS_DEEP = bool(os.environ.get("KIMI_PROXY_DEEP"))
UNITS = (*' \t\naA0_./-@+«é"\\', "a.", "a/", "a ", " a", "0.", "a:", "1:", "::")
PREFIXES = ("", "«", '"', "[", "{", "<", "/*", "#", "a")
FEW = (("", " "), ("", "a"), ("«", " "), ("", "a/"))  # of them all, which take a minute
# What took seconds for kilobytes once, and passed the tests of its time.
ONCE_SLOW = (
    re.compile(r"<([a-zA-Z][\w.-]*)\b[^>]*>.*?</\1>", re.DOTALL),
    re.compile(r"(?:return|=>|[=(?]) *+(?:\( *+)?<[A-Za-z>][^\n;]*> *$", re.MULTILINE),
    re.compile(r"package\s+[\w.]+\s*;?\s*$"),
)


def patterns() -> dict[tuple[str | bytes, int], tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    """Return every pattern that a module holds, by itself or in a table, with where it stands."""
    for module in pkgutil.walk_packages(kimi_proxy.__path__, "kimi_proxy."):
        if not module.name.endswith("__main__"):
            with suppress(ModuleNotFoundError):  # of what is optional
                importlib.import_module(module.name)
    languages.openers()  # made of a file when first needed
    found: dict[tuple[str | bytes, int], tuple[str, re.Pattern[str] | re.Pattern[bytes]]] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("kimi_proxy."):
            for key, value in vars(module).items():
                for pattern in _inside(value, set()):
                    found.setdefault((pattern.pattern, pattern.flags), (f"{name}.{key}", pattern))
    for openers in languages.openers().values():
        for _, _, pattern in openers:
            found.setdefault((pattern.pattern, pattern.flags), ("languages.toml", pattern))
    return found


def _inside(value: object, seen: set[int]) -> Iterator[re.Pattern[str] | re.Pattern[bytes]]:
    if id(value) in seen or isinstance(value, type):
        return
    seen.add(id(value))
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        for inner in list(value.values()):
            yield from _inside(inner, seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _inside(inner, seen)
    elif type(value).__module__.startswith("kimi_proxy"):
        for field in getattr(type(value), "__dataclass_fields__", ()):
            yield from _inside(getattr(value, field, None), seen)
    elif callable(value) and getattr(value, "__closure__", None):
        for cell in value.__closure__:
            yield from _inside(cell.cell_contents, seen)


def uses() -> dict[str, set[str]]:
    """Return by which methods each pattern is used: a private one in its module, another one anywhere."""
    found: dict[str, set[str]] = {}
    for file in SOURCE.rglob("*.py"):
        module = ".".join(file.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")
        use = rf"\b([A-Z_][A-Z0-9_]*)(?:\[\w+\])?\.({'|'.join(METHODS)})\b"
        for name, method in re.findall(use, file.read_text("utf-8")):
            where = f"{module}.{name}" if name.startswith("_") else name
            found.setdefault(where, set()).add(FOUND_BY.get(method, method))
    return found


def literals(pattern: str) -> list[str]:
    """Return strings that the pattern may stay in for long: its words, and its signs."""
    words = re.findall(r"[A-Za-z]{2,}", pattern)[:6]
    signs = [sign for sign in dict.fromkeys(pattern) if not sign.isalnum() and sign not in "()?*+|^$\\"][:8]
    return [*words, *signs]


def seconds(pattern: re.Pattern[str] | re.Pattern[bytes], method: str, text: str) -> float:
    """Return the CPU time of one match, the best of three that take long enough to matter."""
    given = text.encode() if isinstance(pattern.pattern, bytes) else text
    best = 1e9
    for _ in range(3):
        began = time.process_time()
        getattr(pattern, method)(given)
        best = min(best, time.process_time() - began)
        if best < NOTHING_S:
            break
    return best


def is_slow(pattern: re.Pattern[str] | re.Pattern[bytes], method: str, prefix: str, unit: str) -> bool:
    def of(chars: int) -> float:
        return seconds(pattern, method, prefix + unit * (chars // len(unit)) + "\x00")

    if of(SHORT) > TOO_LONG_S:
        return True
    if not NOTHING_S < (long := of(LONG)) < 5 * TOO_LONG_S:
        return long > NOTHING_S
    return all(of(LONGER) > 8 * of(LONG) for _ in range(4))  # once by chance, on a busy machine


def test_no_pattern_takes_more_than_linear_time() -> None:
    used = uses()
    slow: list[str] = []
    for where, pattern in patterns().values():
        written = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
        own = literals(written)
        every = [(prefix, unit) for prefix in (*PREFIXES, *own) for unit in dict.fromkeys((*UNITS, *own))]
        tries = [*adversarial.inputs(pattern), *(every if IS_DEEP else FEW)]
        name = where.rpartition(".")[2]
        for method in used.get(where if name.startswith("_") else name, {"match"}):
            found = next((t for t in tries if is_slow(pattern, method, *t)), None)
            if found is not None:
                slow.append(f"{where}: {written!r} by {method} of {found[0]!r} and many {found[1]!r}")
    assert slow == []


def possessive_groups(part: object) -> Iterator[str]:
    """Yield the groups that keep what they have matched, as in `(?:ab?)*+`; single characters may."""
    if isinstance(part, tuple | list | re._parser.SubPattern):  # type: ignore[attr-defined]
        match tuple(part):
            case (operator, (_, _, repeated)) if str(operator) == "POSSESSIVE_REPEAT" and not is_character(repeated):
                yield str(repeated)
            case (operator, _) if str(operator) == "ATOMIC_GROUP":
                yield str(part)
        for inner in part:
            yield from possessive_groups(inner)


def is_character(repeated: Sequence[tuple[object, object]]) -> bool:
    return len(repeated) == 1 and str(repeated[0][0]) in ("LITERAL", "NOT_LITERAL", "IN", "ANY")


def test_every_python_matches_the_same() -> None:
    """Before 3.11.5 (Debian 12 has 3.11.2), a possessive group that fails in its middle goes on from there."""
    parse = re._parser.parse  # type: ignore[attr-defined]
    assert list(possessive_groups(parse(r'"(?:[^"]|"(?=x))*+')))
    assert list(possessive_groups(parse(r"a(?>b|c)")))
    assert not list(possessive_groups(parse(r"a*+[bc]++(?:d\w*+)*")))
    found = {where for where, pattern in patterns().values() if list(possessive_groups(parse(pattern.pattern)))}
    assert found == set()


@pytest.mark.parametrize("pattern", ONCE_SLOW, ids=lambda pattern: pattern.pattern[:20])
def test_a_pattern_that_is_slow_is_found_by_inputs_of_its_own_making(pattern: re.Pattern[str]) -> None:
    assert any(is_slow(pattern, "search", *tried) for tried in adversarial.inputs(pattern))
