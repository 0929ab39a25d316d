"""The moment to cut results that the model has read: when it is free, or pays in spite of the prompt cache."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kimi_proxy.core.chat import Request
from kimi_proxy.features.prompt_cache import CacheMoment
from kimi_proxy.features.sanitizer.plan import LongOutput
from kimi_proxy.features.sanitizer.policy import SPARED_FROM, Policy, WarmCut, shows_file
from kimi_proxy.features.sanitizer.stage import BYTES_PER_TOKEN, Decision

MARKER_TOKENS = 60  # of what is left of an old result: its ends and the marker
# A file is edited soon after it was read: of those that a free cut took, nine in ten that were missed had been read
# within the last 25 requests. Longer ones cost more than that.
FILE_TOKENS = 4_000


@dataclass(frozen=True, slots=True)
class CutMoment:
    """A request, as far as it decides whether old results are cut in it."""

    is_free: bool  # the provider has to rewrite at least a part of the prompt, whatever we send
    is_user_turn: bool
    has_tools: bool
    prompt_tokens: int
    # The prices of cached tokens, as multiples of that of a plain one.
    read: float
    write: float

    @classmethod
    def of(cls, request: Request, cache: CacheMoment) -> "CutMoment":
        return cls(
            is_free=cache.cold_from is not None,
            is_user_turn=is_user_turn(request),
            has_tools=bool(request.tool_names),
            prompt_tokens=len(request.body) // BYTES_PER_TOKEN,
            read=cache.rules.read,
            write=cache.rules.write,
        )

    def allows_cuts(self, policy: Policy) -> bool:
        """Return whether anything that was sent before may leave otherwise now."""
        return self.is_free or (self.is_user_turn and self._warm_cut(policy).within_requests > 0)

    def _warm_cut(self, policy: Policy) -> WarmCut:
        return policy.warm_cut(self.has_tools)


@dataclass(frozen=True, slots=True)
class Aged:
    """A tool result in the order of the conversation, with what speaks for and against cutting it now."""

    tokens: int  # as it stands in the request now; 0 if a cut would leave as much
    is_unread: bool  # the model has not answered since
    failed: bool = False  # it reports a failure that nothing has fixed yet
    is_referred: bool = False  # the newest words of the user or the model name its file
    is_recovered: bool = False  # it was read back: never cut again
    shows_file: bool = False
    place: int = 0  # tokens that stand before it
    is_cached: bool = True  # the provider still has it, as it was sent
    age: int = 0  # answers of the model since
    likely: float | None = None  # how likely it still is to be quoted; None where nothing was learned


@dataclass(frozen=True, slots=True)
class OldCuts:
    """Positions of old results to cut, oldest first, and the cached tokens that have to be rewritten for it."""

    positions: Sequence[int] = ()
    rewritten_tokens: int = 0


def choose_old(results: Sequence[Aged], policy: Policy, moment: CutMoment) -> OldCuts:
    """Return which results are cut now: at a free moment all old ones that are not cached, else those that pay."""
    if not moment.allows_cuts(policy):
        return OldCuts()
    if moment.is_free:
        found = old_results(results, policy.keep_newest, policy.old_tokens)
        return OldCuts([at for at in found if not (results[at].is_cached or _is_young_file(results[at], policy))])
    warm = policy.warm_cut(moment.has_tools)
    found = old_results(results, warm.keep_newest, policy.old_tokens, spares_files=warm.spares_files)
    cuts = [CachedCut(results[at].place, max(0, results[at].tokens - MARKER_TOKENS)) for at in found]
    chosen = paying(cuts, moment.prompt_tokens, warm.within_requests, moment.read, moment.write)
    if not chosen:
        return OldCuts()
    rewritten = moment.prompt_tokens - chosen[0].place - sum(cut.saved for cut in chosen)
    return OldCuts(found[len(found) - len(chosen) :], max(0, rewritten))


def _is_young_file(result: Aged, policy: Policy) -> bool:
    """Return whether a result shows a file that an edit may still quote."""
    return may_be_young_file(result, policy) and (result.likely is None or result.likely >= SPARED_FROM)


def may_be_young_file(result: Aged, policy: Policy) -> bool:
    """Return whether that depends on how likely it is to be used."""
    return result.shows_file and result.age < policy.file_requests and result.tokens <= FILE_TOKENS


@dataclass(frozen=True, slots=True)
class CachedCut:
    """A cut of a result that the provider has cached."""

    place: int  # tokens that stand before it
    saved: int


def paying(
    cuts: Sequence[CachedCut], prompt_tokens: int, within_requests: int, read: float, write: float
) -> Sequence[CachedCut]:
    """Return the newest of these cuts, oldest first, that earn most within so many requests; none if none do.

    `read` and `write` are the prices of cached tokens, as multiples of that of a plain one. What stands after the
    oldest of them has to be written to the cache again.
    """
    best, most, saved = len(cuts), 0.0, 0
    for at in range(len(cuts) - 1, -1, -1):
        saved += cuts[at].saved
        rewritten = max(0, prompt_tokens - cuts[at].place - saved)
        net = read * saved * (within_requests + 1) - (write - read) * rewritten
        if net > most:
            best, most = at, net
    return cuts[best:]


def old_results(results: Sequence[Aged], keep_newest: int, min_tokens: int, *, spares_files: bool = False) -> list[int]:
    """Return the positions of the results that a cut of old ones takes, oldest first.

    What is unread, among the newest, failed, still referred to or read back stays, and what shows a file if asked for.
    """
    newest = max(0, len(results) - keep_newest)
    return [
        at
        for at, result in enumerate(results)
        if at < newest
        and result.tokens > min_tokens
        and not (result.is_unread or result.failed or result.is_referred or result.is_recovered)
        and not (spares_files and result.shows_file)
    ]


def is_user_turn(request: Request) -> bool:
    """Return whether the user spoke last: no result of a tool stands after the model's last words."""
    last = request.messages[-1] if request.messages else None
    return last is not None and last.role == "user" and all(part.kind != "tool_result" for part in last.parts)


def aged_results(
    request: Request, outputs: Sequence[LongOutput], decisions: Mapping[bytes, Decision], cold_from: int | None
) -> list[Aged]:
    """Return the results in their order, with what speaks for and against cutting each now."""
    newest, ages = _newest_words(request), _ages(request)
    last_try = {_about(output): at for at, output in enumerate(outputs) if _about(output)}
    aged: list[Aged] = []
    for at, output in enumerate(outputs):
        decision, path = decisions.get(output.key), output.origin.path
        shown = output.text if decision is None or decision.shown is None else decision.shown
        aged.append(
            Aged(
                tokens=len(shown) // BYTES_PER_TOKEN,
                is_unread=output.is_unread,
                failed=output.origin.failed and last_try.get(_about(output), at) == at,
                is_referred=bool(path) and path.replace("\\", "/").rpartition("/")[2] in newest,
                is_recovered=output.whole_because == "recovered",
                shows_file=shows_file(output.origin),
                place=request.messages[output.spot[0]].start // BYTES_PER_TOKEN,
                is_cached=cold_from is None or output.spot[0] < cold_from,
                age=ages[output.spot[0]],
            )
        )
    return aged


def _ages(request: Request) -> list[int]:
    """Return for each message how often the model has answered since. An answer may be several messages."""
    ages: list[int] = []
    answers, is_answer = 0, False
    for message in reversed(request.messages):
        answers += message.role == "assistant" and not is_answer
        is_answer = message.role == "assistant"
        ages.append(answers)
    return ages[::-1]


def _about(output: LongOutput) -> str:
    return output.origin.command or output.origin.path


def _newest_words(request: Request) -> str:
    """Return what the user said last, and what the model said and called last."""
    said: list[str] = []
    for role in ("user", "assistant"):
        newest = next((message for message in reversed(request.messages) if message.role == role), None)
        parts = newest.parts if newest else ()
        said += [part.text for part in parts if part.kind in ("text", "tool_call")]
    return "\n".join(said)
