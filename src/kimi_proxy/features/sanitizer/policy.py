"""Policies for cutting tool results: three depths, the results that agents are likely to quote, and the moments to cut
old results: when that is free, or pays off in spite of the prompt cache.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kimi_proxy.core.chat import Request
from kimi_proxy.core.lines import split
from kimi_proxy.core.prune import CallContext, Origin
from kimi_proxy.features.chat.prompt_cache import CacheMoment
from kimi_proxy.features.pruning import score
from kimi_proxy.features.pruning.call_signals import output_signals
from kimi_proxy.features.pruning.model import load_scorers
from kimi_proxy.features.sanitizer.plan import READERS, LongOutput
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS, MARKERS_TOKENS, strip_row_numbers
from kimi_proxy.features.sanitizer.stage import BYTES_PER_TOKEN, Decision

PolicyName = Literal["careful", "default", "deep"]

# Of results over 1,000 tokens in sessions that nothing was learned from, 7 % of those below .2 were used, 46 % of those
# between .2 and .5, 78 % of those above.
SPARED_FROM = 0.3
LIKELY_FILE_TOKENS = 24_000  # up to which a file that is so likely to be used enters uncut
LIKELY_MAX_CHARS = 256 * 1024  # of a longer one its tool decides: the event loop would wait for reading it

REPORTERS = frozenset({"task", "agent", "taskoutput", "agentoutputtool"})
QUOTING_EDITORS = frozenset(
    {"edit", "multiedit", "edit_file", "str_replace", "str_replace_editor", "str_replace_based_edit_tool", "replace"}
    | {"replace_in_file", "search_replace", "strreplace"}
)
# A command that prints a file or a change of one, and not what another printed. An agent may call it from a script.
_PRINTS_FILE = re.compile(
    r"(?:^|&&|\|\||[;(\"'`\n])[ \t]{0,8}(?:cat|bat|sed|nl|head|tail|awk|less|more)[ \t]"
    r"|\bgit[ \t][^|;&\n]{0,80}?(?:diff|show|log[ \t](?:[^|;&\n]{0,80}?[ \t])?(?:-p|--patch))\b"
    r"|\bgh[ \t]+pr[ \t]+diff\b"
)
# A list of files, from which an agent takes the paths that it reads next.
_LISTS_FILES = re.compile(
    r"(?:^|&&|\|\||[;(\"'`\n])[ \t]{0,8}"
    r"(?:rg[ \t](?:[^|;&\n]{0,80}?[ \t])?--files\b|(?:find|fd|tree)[ \t]|git[ \t]+ls-files\b)"
)
# A log is read to find what went wrong, not to be edited.
_NAMES_LOG = re.compile(r"\.(?:log|out|err)(?:\.\d{1,4})?(?![\w.])")
_END_OF_COMMAND = re.compile(r"[|;&\n]")
COMMAND_CHARS = 4000


@dataclass(frozen=True, slots=True)
class EntryCut:
    """Limits for cutting a new result: the tokens above which it is cut, and the tokens that stay at least."""

    over_tokens: int
    keep_tokens: int = 0
    most_tokens: int = HUGE_TOKENS  # what enters of it has no more, whatever the policy


@dataclass(frozen=True, slots=True)
class WarmCut:
    """A cut of cached results: it must pay off within so many requests, and spares so many of the newest results."""

    within_requests: int  # 0: none is made
    keep_newest: int
    spares_files: bool = False  # results that show a file stay


@dataclass(frozen=True, slots=True)
class Policy:
    """Figures measured on real agents' sessions (`scripts/bench sessions`); see docs/sanitizer.md."""

    entry_tokens: int  # a new result with more tokens is cut when it enters
    spares_quoted: bool  # but not what agents are likely to quote, unless it is huge
    keep_newest: int = 0  # newest results that a free cut of old ones spares
    keeps_files: bool = False  # such a cut spares files of which no newer result shows the same path
    file_tokens: int = HUGE_TOKENS  # up to which a new file that is likely to be used enters uncut
    pays_within: int = 0  # requests within which a cut of cached results has to pay; 0: none is made
    patchers_pay_within: int = 0  # more of them for agents that edit with patches: their sessions are longer
    keep_cached: int = 0  # newest results that such a cut spares
    frees_window: bool = False  # old results are cut once where the client would compact its window otherwise
    old_tokens: int = 200  # an old result with fewer tokens stays: its marker would cost half of it

    @property
    def quoted_tokens(self) -> int:
        """Return the tokens up to which a new result that is likely to be quoted is sent uncut."""
        return HUGE_TOKENS if self.spares_quoted else self.entry_tokens

    def entry_cut(self, origin: Origin, edits_by_quoting: bool, likely: float | None = None) -> EntryCut:
        """Return how a new result is cut, which is used with that probability if one is known."""
        is_spared = is_quoted(origin, edits_by_quoting)
        if likely is not None and edits_by_quoting:  # of agents that patch files too few sessions were learned from
            is_spared = likely >= SPARED_FROM
        if not (self.spares_quoted and is_spared):
            return EntryCut(self.entry_tokens)
        is_likely_file = likely is not None and edits_by_quoting and origin.tool.lower() in READERS
        most = self.file_tokens if is_likely_file else HUGE_TOKENS
        return EntryCut(over_tokens=most, keep_tokens=most - MARKERS_TOKENS, most_tokens=most)

    def warm_cut(self, has_tools: bool, edits_by_quoting: bool = True) -> WarmCut:
        """Return when results that are cached are cut at a new turn of the user.

        Files stay, for an edit or a patch quotes them later.
        """
        patches = has_tools and not edits_by_quoting
        within = max(self.pays_within, self.patchers_pay_within) if patches else self.pays_within
        return WarmCut(within, self.keep_cached, spares_files=self.spares_quoted)


POLICIES: Mapping[PolicyName, Policy] = {
    "careful": Policy(
        entry_tokens=1_000, spares_quoted=True, keep_newest=24, keeps_files=True, file_tokens=LIKELY_FILE_TOKENS
    ),
    "default": Policy(
        entry_tokens=1_000,
        spares_quoted=True,
        keep_newest=2,
        keeps_files=True,
        file_tokens=LIKELY_FILE_TOKENS,
        pays_within=20,
        patchers_pay_within=80,
        keep_cached=5,
        frees_window=True,
    ),
    "deep": Policy(
        entry_tokens=1_000, spares_quoted=False, keep_newest=3, pays_within=20, keep_cached=3, frees_window=True
    ),
}


def is_quoted(origin: Origin, edits_by_quoting: bool) -> bool:
    """Return whether agents are likely to quote a result.

    Of the results over 1,000 tokens of Claude Code's `Read` 45 % are quoted later, mostly to edit the file, and half of
    the reports of agents that it starts; of its `Grep` and `Bash` 6 %. Codex reads by commands: 18 to 33 % of what
    `sed` and the like print is quoted by its patches, 1 to 8 % of the rest.
    """
    tool = origin.tool.lower()
    return tool in REPORTERS or (tool in READERS if edits_by_quoting else _shows_file_or_list(origin))


def shows_file(origin: Origin) -> bool:
    """Return whether a result shows a file, a change of one, or a list of files."""
    return origin.tool.lower() in READERS or _shows_file_or_list(origin)


def _shows_file_or_list(origin: Origin) -> bool:
    return _LISTS_FILES.search(origin.command[:COMMAND_CHARS]) is not None or _prints_file(origin)


def _prints_file(origin: Origin) -> bool:
    command = origin.command[:COMMAND_CHARS]
    for found in _PRINTS_FILE.finditer(command):
        end = _END_OF_COMMAND.search(command, found.end())
        if not _NAMES_LOG.search(command, found.end(), end.start() if end else len(command)):
            return True
    return False


def likely_used(text: str, context: CallContext | None) -> float | None:
    """Return the probability that an agent will use a line of a new result; None without a trained model."""
    if context is None or len(text) > LIKELY_MAX_CHARS:
        return None
    return score.likely_used(output_signals(strip_row_numbers(split(text)), context), load_scorers())


def edits_by_quoting(tools: Iterable[str]) -> bool:
    """Return whether an agent with these tools edits files by quoting the lines to replace."""
    return any(name.lower() in QUOTING_EDITORS for name in tools)


MARKER_TOKENS = 60  # tokens left of an old result: its ends and the marker
# Of a context window: Claude Code compacts at 83 % of 200,000 tokens, Codex and opencode later.
COMPACTED_FROM = 0.8
LEAST_FREED = 0.1  # by the one cut in place of a compaction: less would not put it off for long


def is_nearly_full(request: Request, cache: CacheMoment, window: int) -> bool:
    """Return whether the client is about to compact its window in mid-turn, by the provider's last count."""
    if not (window and cache.tokens_before) or is_user_turn(request):
        return False
    answered = [message.end for message in request.messages if message.role == "assistant"]
    new = (len(request.body) - answered[-1]) // BYTES_PER_TOKEN if answered else 0
    return cache.tokens_before + new >= COMPACTED_FROM * window


@dataclass(frozen=True, slots=True)
class CutMoment:
    """A request, as far as it decides whether old results are cut in it."""

    is_free: bool  # the provider has to rewrite at least a part of the prompt, whatever we send
    is_user_turn: bool
    has_tools: bool
    edits_by_quoting: bool
    prompt_tokens: int
    # The prices of cached tokens, as multiples of that of a plain one.
    read: float
    write: float
    filled_window: int = 0  # the tokens of a context window that the client is about to compact; 0: it is not

    @classmethod
    def of(cls, request: Request, cache: CacheMoment, filled_window: int = 0) -> "CutMoment":
        return cls(
            is_free=cache.cold_from is not None,
            is_user_turn=is_user_turn(request),
            has_tools=bool(request.tool_names),
            edits_by_quoting=edits_by_quoting(request.tool_names),
            prompt_tokens=len(request.body) // BYTES_PER_TOKEN,
            read=cache.rules.read,
            write=cache.rules.write,
            filled_window=filled_window,
        )

    def allows_cuts(self, policy: Policy) -> bool:
        """Return whether anything that was sent before may leave otherwise now."""
        frees_window = policy.frees_window and self.filled_window > 0
        return self.is_free or frees_window or (self.is_user_turn and self.warm_cut(policy).within_requests > 0)

    def warm_cut(self, policy: Policy) -> WarmCut:
        return policy.warm_cut(self.has_tools, self.edits_by_quoting)


@dataclass(frozen=True, slots=True)
class Aged:
    """A tool result in conversation order, with the facts for and against cutting it now."""

    tokens: int  # in its current form; 0 if a cut would not shorten it
    is_unread: bool  # the model has not answered since
    failed: bool = False  # it reports a failure that nothing has fixed yet
    is_referred: bool = False  # the newest words of the user or the model name its file
    is_recovered: bool = False  # it was read back: never cut again
    shows_file: bool = False
    is_superseded: bool = False  # a newer result shows the same file
    place: int = 0  # tokens before it
    is_cached: bool = True  # the provider still has it cached as sent


@dataclass(frozen=True, slots=True)
class OldCuts:
    """Positions of old results to cut, oldest first, and the cached tokens that have to be rewritten for it."""

    positions: Sequence[int] = ()
    rewritten_tokens: int = 0
    frees_window: bool = False  # they stand in place of a compaction by the client


def choose_old(results: Sequence[Aged], policy: Policy, moment: CutMoment) -> OldCuts:
    """Return which results are cut now: at a free moment all old ones that are not cached, else those that pay."""
    if not moment.allows_cuts(policy):
        return OldCuts()
    if moment.is_free:
        found = old_results(results, policy.keep_newest, policy.old_tokens)
        return OldCuts([at for at in found if not (results[at].is_cached or _is_kept_file(results[at], policy))])
    if moment.filled_window:
        return _free_window(results, policy, moment)
    warm = moment.warm_cut(policy)
    found = old_results(results, warm.keep_newest, policy.old_tokens, spares_files=warm.spares_files)
    cuts = [CachedCut(results[at].place, max(0, results[at].tokens - MARKER_TOKENS)) for at in found]
    chosen = paying(cuts, moment.prompt_tokens, warm.within_requests, moment.read, moment.write)
    if not chosen:
        return OldCuts()
    rewritten = moment.prompt_tokens - chosen[0].place - sum(cut.saved for cut in chosen)
    return OldCuts(found[len(found) - len(chosen) :], max(0, rewritten))


def _free_window(results: Sequence[Aged], policy: Policy, moment: CutMoment) -> OldCuts:
    """Return the old results that a free cut would take, if that frees enough of the window."""
    old = old_results(results, policy.keep_newest, policy.old_tokens)
    found = [at for at in old if not _is_kept_file(results[at], policy)]
    freed = sum(results[at].tokens - MARKER_TOKENS for at in found)
    if freed < LEAST_FREED * moment.filled_window:
        return OldCuts()
    rewritten = moment.prompt_tokens - results[found[0]].place - freed
    return OldCuts(found, max(0, rewritten), frees_window=True)


def _is_kept_file(result: Aged, policy: Policy) -> bool:
    """Return whether a result shows a file that an edit may still quote.

    Most are quoted 10 to 100 requests later, so no waiting time protects them; a newer result of the same path does.
    """
    return policy.keeps_files and result.shows_file and not result.is_superseded


@dataclass(frozen=True, slots=True)
class CachedCut:
    """A cut of a result that the provider has cached."""

    place: int  # tokens before it
    saved: int


def paying(
    cuts: Sequence[CachedCut], prompt_tokens: int, within_requests: int, read: float, write: float
) -> Sequence[CachedCut]:
    """Return the newest of these cuts, oldest first, that earn most within that many requests; none if none pays off.

    `read` and `write` are the prices of cached tokens relative to plain ones. Everything after the oldest cut has to be
    written to the cache again.
    """
    best = len(cuts)
    most = 0.0
    saved = 0
    for at in range(len(cuts) - 1, -1, -1):
        saved += cuts[at].saved
        rewritten = max(0, prompt_tokens - cuts[at].place - saved)
        net = read * saved * (within_requests + 1) - (write - read) * rewritten
        if net > most:
            best = at
            most = net
    return cuts[best:]


def old_results(results: Sequence[Aged], keep_newest: int, min_tokens: int, *, spares_files: bool = False) -> list[int]:
    """Return the positions of the old results to cut, oldest first.

    Results that are unread, among the newest, failed, still referred to or read back stay, and so do files if
    requested.
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
    newest = _newest_words(request)
    last_try = {_about(output): at for at, output in enumerate(outputs) if _about(output)}
    shown_files = [at for at, output in enumerate(outputs) if shows_file(output.origin) and not output.origin.failed]
    last_shown = {outputs[at].origin.path: at for at in shown_files if outputs[at].origin.path}
    aged: list[Aged] = []
    for at, output in enumerate(outputs):
        decision = decisions.get(output.key)
        path = output.origin.path
        shown = output.text if decision is None or decision.shown is None else decision.shown
        aged.append(
            Aged(
                tokens=len(shown) // BYTES_PER_TOKEN,
                is_unread=output.is_unread,
                failed=output.origin.failed and last_try.get(_about(output), at) == at,
                is_referred=bool(path) and path.replace("\\", "/").rpartition("/")[2] in newest,
                is_recovered=output.whole_because == "recovered",
                shows_file=shows_file(output.origin),
                is_superseded=last_shown.get(output.origin.path, at) > at,
                place=request.messages[output.spot[0]].start // BYTES_PER_TOKEN,
                is_cached=cold_from is None or output.spot[0] < cold_from,
            )
        )
    return aged


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
