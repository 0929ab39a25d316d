"""What an agent tool found, before anybody prunes it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kimi_proxy.core import lines as text_lines
from kimi_proxy.core.prune import SourceType
from kimi_proxy.core.types import JsonObject


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an output is an error all the same; `reason` is for logs, `remark` for the model."""

    reason: str
    remark: str


@dataclass(frozen=True, slots=True)
class Output:
    """The output may be larger than memory: whoever wants all of it looks at `size` first."""

    size: int  # in bytes
    text: Callable[[], str]  # all of it
    shown: Callable[[], Awaitable[str]]  # as it goes out unpruned
    source_type: SourceType
    first_line: int | None = None  # a window of a file prints its numbers, from this one; it has a line then
    problem: Problem | None = None
    remarks: tuple[str, ...] = ()
    meta: JsonObject = field(default_factory=dict)
    is_whole: bool = True  # False: a part of it was not kept, and is not in `text`


def of_text(
    text: str,
    source_type: SourceType,
    first_line: int | None = None,
    problem: Problem | None = None,
    remarks: tuple[str, ...] = (),
    meta: JsonObject | None = None,
) -> Output:
    """An output that is a text in memory."""

    async def shown() -> str:
        return text if first_line is None else numbered(text, first_line)

    return Output(len(text), lambda: text, shown, source_type, first_line, problem, remarks, meta or {})


def numbered(text: str, first: int) -> str:
    return text_lines.join(text_lines.numbered(first + i, line) for i, line in enumerate(text.split("\n")))
