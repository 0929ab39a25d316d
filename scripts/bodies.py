"""Find types of JSON that no route answers with, no event has and no file holds; `scripts/check` fails for one."""

import ast
import asyncio
import inspect
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import reduce
from pathlib import Path
from typing import get_args, get_type_hints, is_typeddict

from kimi_proxy.api.guard import Guard
from kimi_proxy.api.openapi import KINDS, PROBES
from kimi_proxy.api.routing import DescribedRoute
from kimi_proxy.assembly.apps import proxy_app, pruner_app
from kimi_proxy.assembly.runtime import running
from kimi_proxy.core.config import parse

SUFFIXES = ("Body", "Fields", "Event")


def unused(kinds: Iterable[type], roots: Iterable[object]) -> list[str]:
    """Return the names of those types that none of `roots` is made of."""
    reached = set(parts_of(roots))
    return sorted(f"{kind.__module__}.{kind.__name__}" for kind in kinds if kind not in reached)


def parts_of(roots: Iterable[object]) -> Iterator[object]:
    """Return types with the types of their fields, their bases and those inside of lists and unions."""
    waiting, seen = list(roots), set[object]()
    while waiting:
        kind = waiting.pop()
        if kind in seen:
            continue
        seen.add(kind)
        yield kind
        waiting += get_args(kind)
        if isinstance(kind, type) and hasattr(kind, "__annotations__"):
            waiting += [*get_type_hints(kind).values(), *bases_of(kind)]


def bases_of(kind: type) -> Iterator[object]:
    """Return the types that a TypedDict extends: before Python 3.12 only its source says."""
    if kind.__name__.endswith(SUFFIXES):
        scope = sys.modules[kind.__module__]
        (written,) = ast.parse(inspect.getsource(kind)).body
        for base in written.bases if isinstance(written, ast.ClassDef) else ():
            yield reduce(getattr, ast.unparse(base).split("."), scope)


def defined() -> Iterator[type]:
    """Return every type of that kind in what the servers have loaded."""
    for name, module in list(sys.modules.items()):
        if name.startswith("kimi_proxy."):
            for value in vars(module).values():
                if is_typeddict(value) and value.__module__ == name and value.__name__.endswith(SUFFIXES):
                    yield value


async def answered() -> list[object]:
    """Return the types that routes answer with, and those of events, exports and recordings."""
    with tempfile.TemporaryDirectory() as home:
        async with running(parse("", {}, Path(home))) as runtime:
            guards = [proxy_app(runtime), pruner_app(runtime)]
    routes = [route for guard in guards if isinstance(guard, Guard) for route in guard.app.routes]
    specs = [route.spec for route in (*routes, *PROBES) if isinstance(route, DescribedRoute)]
    found: list[object] = [kind for _, kinds in KINDS.values() for kind in kinds]
    for spec in specs:
        found += [spec.answer, spec.error, *spec.more.values()]
    return found


if __name__ == "__main__":
    names = unused(defined(), asyncio.run(answered()))
    sys.exit("\n".join(f"{name}: no route, event or file has this type: delete it" for name in names) or 0)
