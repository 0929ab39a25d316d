"""The forms in which the proxy could send each output of a session, and the lines that each form would hide."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from kimi_proxy.core.markers import quoted_id
from kimi_proxy.core.prune import CallContext
from kimi_proxy.features.sanitizer.lossless import (
    MAX_EARLIER,
    MIN_SHARED_ROWS,
    READABLE,
    Earlier,
    aged_form,
    bounded_form,
    lossless_form,
    rows_of,
)
from kimi_proxy.features.sanitizer.plan import LongOutput, goal_of, is_recovery, origin_of, result_of
from kimi_proxy.features.sanitizer.policy import POLICIES, EntryCut
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, ShortenedText, Task, shorten
from kimi_proxy.lab.transcripts.transcript import AgentCall, CallOutput
from kimi_proxy.lab.used_lines import bare_line, lines_of

PREVIEW_CHARS = 200  # the default of [sanitizer] preview_length
MAX_ENGINE_CHARS = 2_000_000
MIN_LISTED_CHARS = 200  # the sanitizer's plan also skips texts that cannot have more tokens

Weigh = Callable[[str], float]


@dataclass(frozen=True, slots=True)
class Form:
    """A way to show an output. `saved` and `gap` are the provider's tokens."""

    saved: float
    hidden: frozenset[str] = frozenset()  # used lines that it does not show
    gap: float = 0.0  # of the gaps that have them
    is_readable: bool = False  # all of it is there to be read, or pointed to
    points_to: int = -1  # the output that contains the omitted text


@dataclass(slots=True)
class OutputForms:
    """`engine` is by how the result is cut at its entry; `pointers` are to earlier outputs, newest first."""

    repeats: tuple[int, ...] = ()  # earlier outputs with the same text
    plain: Form | None = None
    pointers: tuple[Form, ...] = ()
    engine: dict[EntryCut, Form] = field(default_factory=dict)
    bounded: dict[int, Form] = field(default_factory=dict)  # by the tokens that may stay
    aged: Form | None = None


@dataclass(frozen=True, slots=True)
class Entering:
    """The call of an output, the agent's activity, the probability of use, and the user's words so far."""

    call: AgentCall
    context: CallContext | None
    likely: float | None
    words: Sequence[str]


class FormsBuilder:
    """Makes the forms of a session's outputs, one after the other; `weigh` counts as the provider does."""

    def __init__(self, quotes_to_edit: bool, weigh: Weigh, hint: str = "") -> None:
        self._quotes = quotes_to_edit
        self._weigh = weigh
        self._hint = hint
        self._shown: dict[int, LongOutput] = {}
        self._rows: dict[int, frozenset[int]] = {}
        self._texts: defaultdict[int, list[int]] = defaultdict(list)

    def forget(self) -> None:
        """A compaction has taken away everything that was shown."""
        self._shown.clear()
        self._rows.clear()
        self._texts.clear()

    def make(
        self, index: int, output: CallOutput, entering: Entering, used: Sequence[str], tokens: float
    ) -> OutputForms:
        """Return the forms of an output of so many tokens, of which these lines are used later."""
        forms = OutputForms()
        if len(output.text) <= MIN_LISTED_CHARS:
            return forms
        call = entering.call
        is_recovered = is_recovery(call.name, call.arguments)
        result = result_of(origin_of(call.name, call.arguments), output.text, call.id, is_recovered=is_recovered)
        if quoted_id(result.text) is not None:  # recorded behind a proxy of ours, whose originals are elsewhere
            result = replace(result, whole_because="already_cut")
        seed = sha256(call.id.encode("utf-8", "surrogatepass")).digest()
        forms.plain = self._form(result, lossless_form(result, (), seed, self._hint), used)
        forms.repeats = tuple(self._texts[hash(result.text)])
        self._rows[index] = frozenset(rows_of(result))
        forms.pointers = tuple(self._pointers(index, result, seed, used))
        if not (forms.repeats or result.whole_because) and len(result.text) <= MAX_ENGINE_CHARS:
            forms.engine = self._engine(result, entering, seed, used, tokens)
        forms.aged = self._form(result, aged_form(result, seed, self._hint), used)
        for most in {HUGE_TOKENS, *(policy.file_tokens for policy in POLICIES.values())}:
            if tokens > most and (bounded := self._form(result, bounded_form(result, seed, most, self._hint), used)):
                forms.bounded[most] = bounded
        self._shown[index] = result
        self._texts[hash(result.text)].append(index)
        return forms

    def _pointers(self, index: int, result: LongOutput, seed: bytes, used: Sequence[str]) -> Iterator[Form]:
        """Yield a form for each of the outputs that share most rows, as `readable_before` orders them.

        Some may be cut by then, so there are more of them.
        """
        wanted = self._rows[index]
        if len(wanted) < MIN_SHARED_ROWS:
            return
        shared = [(len(wanted & rows), at) for at, rows in self._rows.items() if at != index]
        alike = sorted((pair for pair in shared if pair[0] >= MIN_SHARED_ROWS), reverse=True)
        for _, target in alike[: 2 * MAX_EARLIER]:
            shorter = lossless_form(result, (Earlier.of(self._shown[target]),), seed, self._hint)
            if shorter is not None and shorter.why == "repeated":
                form = self._form(result, shorter, used, target)
                if form is not None:
                    yield form

    def _engine(
        self, result: LongOutput, entering: Entering, seed: bytes, used: Sequence[str], tokens: float
    ) -> dict[EntryCut, Form]:
        likely = entering.likely
        ways = {policy.entry_cut(result.origin, self._quotes, likely) for policy in POLICIES.values()}
        made: dict[EntryCut, Form] = {}
        for way in ways:
            if tokens > way.over_tokens:
                task = Task(
                    result.text,
                    goal_of(entering.words),
                    result.origin,
                    result.is_unread,
                    way.over_tokens,
                    PREVIEW_CHARS,
                    seed,
                    self._hint,
                    keep_tokens=way.keep_tokens,
                    context=entering.context,
                    most_tokens=way.most_tokens,
                )
                if form := self._form(result, shorten(task), used):
                    made[way] = form
        return made

    def _form(
        self, result: LongOutput, shorter: ShortenedText | None, used: Sequence[str], target: int = -1
    ) -> Form | None:
        if shorter is None or not shorter.hidden:
            return None
        saved = self._weigh(result.text) - self._weigh(shorter.shown)
        readable = shorter.why in READABLE
        if not used:
            return Form(saved, is_readable=readable, points_to=target)
        kept = {*lines_of(shorter.shown), *(lines_of(self._shown[target].text) if target >= 0 else ())}
        hidden = frozenset(line for line in used if line not in kept)
        gap = sum(map(self._weigh, _gaps(result.text, kept, hidden))) if hidden else 0.0
        return Form(saved, hidden, gap, readable, target)


def _gaps(text: str, kept: set[str], hidden: frozenset[str]) -> Iterator[str]:
    """Yield the runs of lines that are not shown and have one of the hidden ones."""
    run: list[str] = []
    for line in (*text.split("\n"), None):
        if line is not None and bare_line(line) not in kept:
            run.append(line)
            continue
        if any(bare_line(one) in hidden for one in run):
            yield "\n".join(run)
        run = []
