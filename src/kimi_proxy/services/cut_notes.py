"""What the notes beside originals say of their cuts. They are ours, of whichever version; some say little."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kimi_proxy.core import jsontext
from kimi_proxy.core.errors import ParseError
from kimi_proxy.core.servers import Masking
from kimi_proxy.core.types import JsonValue
from kimi_proxy.services.store import Pin

CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Note:
    """What the note beside an original says of its cuts."""

    door: str  # pruner, chat or gateway
    kind: str  # prune, mask, output or history
    goal: str = ""
    source_type: str = ""
    server: str = ""
    session: str = ""
    cuts: tuple[tuple[int, int, str], ...] = ()
    lines: int | None = None
    chars: int | None = None
    tokens: tuple[int, int] | None = None
    limits: Masking | None = None

    @property
    def lines_cut(self) -> int:
        return sum(end - start + 1 for start, end, _ in self.cuts)


def read(id: str, about: bytes, pin: Pin | None) -> Note:
    """What can be told of the original `id` and, if it is an output in a conversation, of its pin."""
    try:
        value = jsontext.decode(about)
    except ParseError:
        value = None
    match value:
        case {"what": "mask", "server": str(server), "limits": dict(limits), "chars": int(chars), "lines": int(rows)}:
            masked = Masking.model_validate(limits)
            return Note(
                "gateway", "mask", server=server, lines=rows, chars=chars, tokens=_sizes(chars, masked), limits=masked
            )
        case {"what": "mask", "server": str(server)}:
            return Note("gateway", "mask", server=server)
        case {"what": "history", "session": str(session)}:
            return Note("chat", "history", session=session)
        case {"what": "history"}:
            return Note("chat", "history")
        case {"goal": str(goal), "source_type": str(kind), "cuts": list(cuts), "stats": dict(stats)}:
            count, sizes = _stats(stats)
            found = tuple(_cuts(cuts))
            return Note("chat" if pin else "pruner", "prune", goal, kind, cuts=found, lines=count, tokens=sizes)
        case {"what": str(what)}:
            return Note("chat" if what == "output" else "tools", "output")
        case _:
            return Note("chat" if pin else "pruner", "mask" if id.startswith("msk_") else "output")


def _sizes(chars: int, limits: Masking) -> tuple[int, int]:
    """Tokens of a masked text, estimated by its length: to count them would mean to read it."""
    return chars // CHARS_PER_TOKEN, min(chars, limits.head_chars + limits.tail_chars) // CHARS_PER_TOKEN


def _cuts(found: Sequence[JsonValue]) -> Iterator[tuple[int, int, str]]:
    for cut in found:
        match cut:
            case {"start": int(start), "end": int(end), "reason": str(reason)}:
                yield start, end, reason


def _stats(stats: Mapping[str, JsonValue]) -> tuple[int | None, tuple[int, int] | None]:
    match stats:
        case {"original_lines": int(count), "tokens_est_before": int(before), "tokens_est_after": int(after)}:
            return count, (before, after) if before else None
    return None, None
