"""Cases from agents' sessions: an output, what the agent was doing when it came, and the rows that it used later."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.cases import Case
from evaluation.judging import BUDGETS
from kimi_proxy.core import tokens
from kimi_proxy.core.lines import join, split
from kimi_proxy.core.prune import CallContext, Origin
from kimi_proxy.features.pruning import score
from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.kinds import SOURCE_TYPES, kind_of
from kimi_proxy.features.pruning.model import load_scorers
from kimi_proxy.features.pruning.signals import measure, wider_goal
from kimi_proxy.features.pruning.structure.blocks import Floats
from kimi_proxy.features.sanitizer.plan import CallHistory, MadeCall, goal_of, origin_of, own_words
from kimi_proxy.features.sanitizer.policy import edits_by_quoting
from kimi_proxy.features.sanitizer.shorten import strip_row_numbers
from kimi_proxy.lab.transcripts import places
from kimi_proxy.lab.transcripts.transcript import AgentRequest, Transcript
from kimi_proxy.lab.used_lines import MIN_LINE_CHARS, bare_line, uses

MIN_TOKENS = 1000  # of an output: shorter ones are hardly ever cut
MAX_CHARS = 400_000
MIN_ROWS = 20


@dataclass(frozen=True, slots=True)
class UsedOutput:
    """An output as a case; `countable` are its rows that can count as used, `gold` of the case those that were."""

    case: Case
    context: CallContext
    countable: tuple[int, ...]


def outputs(transcript: Transcript, min_tokens: int = MIN_TOKENS) -> Iterator[UsedOutput]:
    """Yield the long outputs of a session in their order, used or not."""
    used: dict[int, set[str]] = {}
    for use in uses(transcript):
        used.setdefault(use.output, set()).add(use.line)
    history = CallHistory(edits_by_quoting(call.name for request in transcript.requests for call in request.calls))
    words: list[str] = []
    place = -1
    for request in transcript.requests:
        _listen(request, history, words)
        for output in request.outputs:
            place += 1
            context = history.result(output.call_id, output.text, output.failed)
            if context is None or len(output.text) > MAX_CHARS or len(output.text) <= min_tokens:
                continue
            found = _case(f"{transcript.id}:{place}", output.text, context, words, used.get(place, set()))
            if found is not None and tokens.count(output.text) > min_tokens:
                yield found
        history.answer(request.said, [MadeCall.of(call.id, call.name, call.arguments) for call in request.calls])


def sampled(
    folders: Iterable[Path], limit: int, seed: int, progress: Callable[[int, int], None] = lambda done, of: None
) -> list[list[UsedOutput]]:
    """Return the long outputs of whole sessions, as many sessions as have about `limit` outputs that were used."""
    found = places.find((folder.name, folder) for folder in folders)
    random.Random(seed).shuffle(found)
    sessions: list[list[UsedOutput]] = []
    cases = 0
    for done, place in enumerate(found):
        progress(done, len(found))
        for transcript in places.load(place):
            own = list(outputs(transcript))
            sessions += [own] if own else []
            cases += sum(bool(output.case.gold) for output in own)
        if cases >= limit:
            break
    return sessions


def engine_likelihoods(output: UsedOutput) -> Floats:
    """Return for each row how likely the engine thinks it is used; nothing but 0 where it has not learned that."""
    case = output.case
    lines = split(case.text)
    scorers = load_scorers()
    if score.USED not in scorers.learned:
        return np.zeros(len(lines))
    goal, found = wider_goal(case.goal, output.context), outline(lines, case.source_type)
    signals = measure(lines, goal, case.source_type, found, lambda: None, output.context)
    return score.use_probability(signals, scorers, lambda: None)


Likelihoods = Callable[[UsedOutput], Floats]


@dataclass(frozen=True, slots=True)
class UsedRecall:
    """Shares of the used rows that stay at each budget, by rank alone: no marker is paid, no line stays for structure.

    Only rows that can count take part. `per_output` is the mean over outputs of which a row was used, each with its own
    budget; `per_session` the mean over sessions whose outputs share one.
    """

    outputs: int
    sessions: int
    per_output: tuple[float, ...]
    per_session: tuple[float, ...]


def used_recall(sessions: Iterable[Sequence[UsedOutput]], likelihoods: Likelihoods) -> UsedRecall:
    """Return how much of what was used stays, when the likeliest rows for their tokens do."""
    of_outputs: list[list[float]] = []
    of_sessions: list[list[float]] = []
    for session in sessions:
        ranked = [_RankedRows.of(output, likelihoods) for output in session]
        of_outputs += [one.recall() for one in ranked if one.used.any()]
        if any(one.used.any() for one in ranked):
            of_sessions.append(_RankedRows.together(ranked).recall())
    return UsedRecall(len(of_outputs), len(of_sessions), _means(of_outputs), _means(of_sessions))


def _means(recalls: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(float(mean) for mean in np.mean(recalls, axis=0)) if recalls else tuple(0.0 for _ in BUDGETS)


@dataclass(frozen=True, slots=True)
class _RankedRows:
    likely: Floats
    costs: Floats
    used: NDArray[np.bool_]

    @classmethod
    def of(cls, output: UsedOutput, likelihoods: Likelihoods) -> "_RankedRows":
        rows = np.array(output.countable, dtype=np.int64)
        costs = np.array(tokens.count_lines(split(output.case.text)), dtype=np.float64)
        return cls(likelihoods(output)[rows], np.maximum(costs[rows], 1.0), np.isin(rows, output.case.gold))

    @classmethod
    def together(cls, ranked: Sequence["_RankedRows"]) -> "_RankedRows":
        return cls(
            np.concatenate([one.likely for one in ranked]),
            np.concatenate([one.costs for one in ranked]),
            np.concatenate([one.used for one in ranked]),
        )

    def recall(self) -> list[float]:
        """Return the share of the used rows among the best that each budget pays for."""
        order = np.argsort(-self.likely / self.costs, kind="stable")
        paid, found = np.cumsum(self.costs[order]), np.cumsum(self.used[order])
        counts = np.searchsorted(paid, [share * paid[-1] for share in BUDGETS], side="right")
        return [float(found[count - 1]) / float(found[-1]) if count else 0.0 for count in counts]


def _listen(request: AgentRequest, history: CallHistory, words: list[str]) -> None:
    for text in request.user if request.is_user_turn else ():
        if said := own_words(text):
            history.user(said)
            words.append(said)


def _case(name: str, text: str, context: CallContext, words: list[str], used: set[str]) -> UsedOutput | None:
    origin: Origin = origin_of(context.tool, context.arguments)
    kind = kind_of(origin, text)
    lines = split(text)
    if kind == "json" or len(lines) < MIN_ROWS:
        return None
    bare = list(map(bare_line, lines))
    countable = tuple(row for row, line in enumerate(bare) if len(line) >= MIN_LINE_CHARS)
    gold = tuple(row for row in countable if bare[row] in used)
    case = Case(
        name, "used", SOURCE_TYPES[kind], context.tool, goal_of(words), join(strip_row_numbers(lines)), gold, context
    )
    return UsedOutput(case, context, countable)
