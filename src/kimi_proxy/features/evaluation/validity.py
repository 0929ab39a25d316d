"""Whether code still parses when its gaps are read as a statement left out."""

import ast
import warnings
from collections.abc import Sequence

from kimi_proxy.core import lines as text_lines
from kimi_proxy.features.pruning.select import gaps
from kimi_proxy.features.pruning.structure import language
from kimi_proxy.features.pruning.structure.grammar import parser

_HASH_COMMENTS = frozenset({"bash", "ruby"})


def survives(lines: Sequence[str], keep: Sequence[bool]) -> bool | None:
    """Whether what is kept parses; None where the whole did not, or where nobody here knows the language."""
    name = language.guess(lines)
    if not name or not parses(text_lines.join(lines), name):
        return None
    return parses(stitched(lines, keep, name), name)


def parses(text: str, name: str) -> bool:
    if name != "python":
        return not parser(name).parse(text.encode("utf-8", "replace")).root_node.has_error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old code may hold escapes that Python now warns of
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last for what nests too deep
        return False
    return True


def stitched(lines: Sequence[str], keep: Sequence[bool], name: str) -> str:
    """The kept lines, with a statement that does nothing in the place of each gap, indented like what it replaces."""
    filler = "..." if name == "python" else "# …" if name in _HASH_COMMENTS else "/* … */"
    starts = {start: _indent(lines, start, end) for start, end in gaps(keep)}
    out: list[str] = []
    for row, (line, stays) in enumerate(zip(lines, keep, strict=True)):
        if row in starts:
            out.append(starts[row] + filler)
        if stays:
            out.append(line)
    return text_lines.join(out)


def _indent(lines: Sequence[str], start: int, end: int) -> str:
    line = next((line for line in lines[start:end] if line.strip()), "")
    return line[: len(line) - len(line.lstrip())]
