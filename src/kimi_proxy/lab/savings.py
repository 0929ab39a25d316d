"""Net savings of a cutting policy in a session, after the cost of the prompt cache, recoveries and extra turns.

Money is at list prices. Cache reads are the provider's own counts; without any, a request is assumed to read
everything it shares with the previous one, unless the pause was longer than the cache's lifetime. Under a policy the
prompt is smaller by the cut tokens, and text after a cut in an old output has to be written to the cache again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

from kimi_proxy.core.prune import Origin
from kimi_proxy.features.chat.compression import LEAST_REMOVED, LEAST_SAVED, SUMMARY_SHARE, TARGET, Preset
from kimi_proxy.features.sanitizer import policy as sanitizer
from kimi_proxy.features.sanitizer.decide import choose_entry
from kimi_proxy.features.sanitizer.lossless import MAX_EARLIER
from kimi_proxy.features.sanitizer.policy import Aged, CutMoment, Policy, PolicyName, choose_old
from kimi_proxy.features.sanitizer.shorten import HUGE_TOKENS
from kimi_proxy.features.sanitizer.stage import tool_tokens
from kimi_proxy.lab.forms import Form
from kimi_proxy.lab.measured import LONG_PAUSE, PAUSE, MeasuredOutput, MeasuredRequest, MeasuredSession
from kimi_proxy.lab.pings import LEAST_TOKENS, due_in_s, worthwhile_pings

MARKER_TOKENS = 40  # tokens that replace an output that is masked completely, or from which an oracle omits lines
PLACEHOLDER_TOKENS = 12  # what Anthropic puts in place of a cleared one
CALL_TOKENS = 60  # of a call that reads something back
READ_BACK_TOKENS = 2000  # of an output that was masked whole, at most
KEPT_ARGUMENTS = 3  # the newest
ROOM = 0.05  # of a window: at the usual growth of 1,000 tokens a request ten requests or more


@dataclass(frozen=True, slots=True)
class SimulatedPolicy:
    """The results that are cut, and when. All thresholds are tokens."""

    name: str
    lossless: bool = False
    entry: Policy | None = None  # whose cuts are made as outputs come in
    old: Policy | None = None  # by which old outputs are cut, when that is free or pays
    oracle_over: int = 0  # at entry outputs over this lose the lines that are never used
    clear_over: int = 0  # prompts over this lose all outputs but three, as by `clear_tool_uses`
    compression: Preset | None = None  # by which old exchanges become a summary when the window is nearly full
    after_change: bool = True  # old outputs are also cut behind a change of the client's own
    pings: int = 0  # at most so many in a row keep a cache warm, which kimi-proxy does not do
    clears_thinking: bool = False  # of earlier turns, when the cache is cold
    cuts_arguments: bool = False  # long ones of old calls that write files, when the cache is cold

    @property
    def offers_tool(self) -> bool:
        """Return whether the recall tool is there from the first request."""
        return bool(self.lossless or self.entry or self.old)

    @property
    def has_limit(self) -> bool:
        """Return whether huge outputs are always cut, as with the sanitizer's own policies."""
        return self.lossless and self.entry is not None


def of_product(name: PolicyName, compression: Preset | None = None) -> SimulatedPolicy:
    """Return what `[sanitizer] policy` does under that name."""
    real = sanitizer.POLICIES[name]
    return SimulatedPolicy(name, lossless=True, entry=real, old=real, compression=compression)


OFF = SimulatedPolicy("off")
DEFAULT = of_product("default")
CHOICES = (of_product("careful"), DEFAULT, of_product("deep"))  # what `[sanitizer] policy` may say
COMPARED = (
    SimulatedPolicy("lossless", lossless=True),
    *CHOICES,
    SimulatedPolicy("clear_tool_uses", clear_over=100_000),  # Anthropic's, with its defaults
    SimulatedPolicy("oracle", oracle_over=200),  # never-used lines of results over 200 tokens are gone
)


# Features of `[cache]` in addition to the default, by setting.
OPTIONS = {"clear_thinking": replace(DEFAULT, name="default, clear_thinking = true", clears_thinking=True)}
_REAL = sanitizer.POLICIES["default"]


def _part(name: str, **without: int | bool) -> SimulatedPolicy:
    """Return the default with one of its parts switched off."""
    real = replace(_REAL, **without)  # type: ignore[arg-type]
    return replace(DEFAULT, name=name, entry=real, old=real)


# Each part on and off.
PARTS = (
    SimulatedPolicy("lossless", lossless=True),
    replace(DEFAULT, name="lossless, new results", old=None),
    replace(DEFAULT, name="default, cut_after_change = false", after_change=False),
    _part("default, no cuts at new turns", pays_within=0, patchers_pay_within=0),
    _part("default, cuts at new turns pay within 20", patchers_pay_within=0),
    _part("default, new files bounded at 8,000", file_tokens=HUGE_TOKENS),
    _part("default, old files cut", keeps_files=False),
    DEFAULT,
    *OPTIONS.values(),
    replace(DEFAULT, name="default, caches kept warm", pings=2),
    CHOICES[2],
    replace(CHOICES[2], name="deep, long arguments of old calls", cuts_arguments=True),
)


@dataclass(slots=True)
class Lost:
    """A used line that was not there when it was written."""

    request: int
    tool: str
    line: str
    by: str


@dataclass(slots=True)
class PolicyFigures:
    cost_usd: float = 0.0
    recovery_usd: float = 0.0  # of the cost, what extra turns took
    extra_turns: int = 0
    recoveries: int = 0
    harmed: int = 0  # outputs of which a used line was cut
    cut: int = 0  # outputs
    compressions: int = 0
    compactions: int = 0  # by the client
    put_off: int = 0  # of these, where the prompt would have been so much smaller that the client had gone on
    pings: int = 0
    # Tokens of all requests, extra turns among them.
    input: float = 0.0
    cached: float = 0.0  # of the input, tokens read from the prompt cache
    written: float = 0.0  # of the input, tokens written to it at their own price
    output: float = 0.0
    largest: float = 0.0  # input of one request
    too_long: int = 0  # requests that do not fit into the window: a provider would have refused them
    lost: list[Lost] = field(default_factory=list)

    def plus(self, other: "PolicyFigures") -> "PolicyFigures":
        """Return the sum of two sessions."""
        total = PolicyFigures(largest=max(self.largest, other.largest), lost=[*self.lost, *other.lost])
        for name in _SUMMED:
            setattr(total, name, getattr(self, name) + getattr(other, name))
        return total


_SUMMED = [each.name for each in fields(PolicyFigures) if each.name not in ("largest", "lost")]


def simulate(session: MeasuredSession, policy: SimulatedPolicy, window: int | None = None) -> PolicyFigures:
    """Return the totals of a session under a policy; without a `window` nothing is compressed."""
    simulation = _Simulation(session, policy, window)
    for request in session.requests:
        simulation.step(request)
    simulation.end()
    return simulation.figures


_WHOLE = Form(0.0, is_readable=True)


@dataclass(slots=True)
class _Held:
    """An output in the prompt, and how it is shown there."""

    output: MeasuredOutput
    form: Form = _WHOLE
    is_masked: bool = False  # of it only the ends are shown, or a marker

    @property
    def shown_tokens(self) -> float:
        return self.output.tokens - self.form.saved


class _Simulation:
    def __init__(self, session: MeasuredSession, policy: SimulatedPolicy, window: int | None) -> None:
        self.figures = PolicyFigures()
        self._window = window
        self._summarized = 0.0  # tokens replaced by a summary, in addition to those of outputs
        self._cut_at = 0  # the request that follows the summary
        self._session = session
        self._policy = policy
        self._held: dict[int, _Held] = {}
        self._saved = 0.0  # by all of them
        self._has_tool = policy.offers_tool and session.has_tools
        self._added = float(tool_tokens() if self._has_tool else 0)
        self._prompt = 0.0  # of the request before
        self._whole_prompt = 0.0  # without the policy
        self._harmed: set[int] = set()
        self._read_whole: set[int] = set()
        self._cut: set[int] = set()
        self._thinking: dict[int, float] = {}  # of the answers to these requests
        self._arguments: list[float] = []  # long ones of calls, the oldest first
        self._dropped = 0.0  # removed tokens of both

    def step(self, request: MeasuredRequest) -> None:
        if self._keep_warm(request):
            request = replace(request, is_cold=False, is_hit=True, read=self._whole_prompt)
        if request.is_reset:
            self._count_compaction(request)
            self._held.clear()
            self._forget_dropped()
            self._arguments.clear()
            self._saved = self._summarized = 0.0
            self._cut_at = request.index
            self._added = float(tool_tokens() if self._has_tool else 0)
            self._prompt = self._whole_prompt = 0.0
        valid = self._prompt
        for output in request.outputs:
            self._held[output.index] = self._enter(output)
        if cuts := self._old_cuts(request):
            valid = min(valid, self._place(cuts[0].output))
            for held in cuts:
                self._age(held)
            self._renew({held.output.index for held in cuts})
        self._drop_words(request)
        if self._compress(request):
            valid = min(valid, self._session.fixed)
        prompt = self._size(request)
        self._pay(request, prompt, valid)
        self._prompt = prompt
        self._whole_prompt = request.prompt
        self._read_back(request, prompt)
        if request.kept_thinking:
            self._thinking[request.index] = request.kept_thinking
        self._arguments += request.long_arguments

    def _count_compaction(self, request: MeasuredRequest) -> None:
        """Count a compaction by the client, and whether its window would have had room for more turns without it."""
        if not request.is_compacted:
            return
        self.figures.compactions += 1
        self.figures.put_off += self._prompt <= (1 - ROOM) * self._whole_prompt

    def end(self) -> None:
        """Pay for the pings after the last request: that it was the last one was not known."""
        if self._session.requests:
            last = self._session.requests[-1]
            self._ping(last, self._allowed_pings(last))

    def _keep_warm(self, request: MeasuredRequest) -> bool:
        """Pay for the pings in the pause before a request; return whether they have kept a cache that had expired."""
        rules = request.rules
        sent = 0
        if rules is None or not rules.life_s or not request.pause_s:
            return False
        every_s = due_in_s(rules)
        sent = min(self._allowed_pings(request), int(request.pause_s / every_s))
        self._ping(request, sent)
        has_expired = request.miss is not None and request.miss.cause in (PAUSE, LONG_PAUSE)
        return sent > 0 and has_expired and request.pause_s <= sent * every_s + rules.life_s

    def _allowed_pings(self, request: MeasuredRequest) -> int:
        if not self._policy.pings or self._session.is_sidechain or self._prompt < LEAST_TOKENS or not request.rules:
            return 0
        return worthwhile_pings(replace(request.rules, read=request.price.read), self._policy.pings)

    def _ping(self, request: MeasuredRequest, times: int) -> None:
        price = request.price
        self.figures.pings += times
        self.figures.cost_usd += times * (price.read * self._prompt + price.output) * price.usd

    def _drop_words(self, request: MeasuredRequest) -> None:
        """Remove old thinking and the arguments of old calls where that costs nothing."""
        if request.drops_thinking:
            self._forget_dropped()
        if self._policy.clears_thinking:
            self._clear_thinking(request)
        if self._policy.cuts_arguments and request.is_cold:
            old = self._arguments[:-KEPT_ARGUMENTS]
            self._dropped += sum(tokens - MARKER_TOKENS for tokens in old)
            self._arguments = self._arguments[len(old) :]

    def _clear_thinking(self, request: MeasuredRequest) -> None:
        """Remove the thinking of all turns but the newest, if nothing behind the oldest of it is cached."""
        turns = [one.index for one in self._session.requests[: request.index + 1] if one.is_user_turn]
        began = [max((turn for turn in turns if turn <= index), default=0) for index in self._thinking]
        newest = max(began, default=0)
        old = [index for index, turn in zip(self._thinking, began, strict=True) if turn < newest]
        if not old:
            return
        # Thinking stands behind the prompt that it answered.
        is_changed = request.is_changed and request.read <= self._session.requests[old[0]].prompt
        if request.is_cold or is_changed:
            self._dropped += sum(self._thinking.pop(index) for index in old)

    def _forget_dropped(self) -> None:
        self._thinking.clear()
        self._dropped = 0.0

    def _size(self, request: MeasuredRequest) -> float:
        return max(request.prompt - self._saved - self._summarized - self._dropped + self._added, 0.0)

    def _enter(self, output: MeasuredOutput) -> _Held:
        policy = self._policy
        tokens = output.tokens
        held = _Held(output)
        if policy.oracle_over and tokens > policy.oracle_over:
            self._show(held, Form(tokens - output.used_tokens - MARKER_TOKENS))
        # Printing again is a recall by other means: what the model saw in part enters whole.
        if any(index in self._held and not self._is_readable(index) for index in output.forms.repeats):
            self._show(held, None)
            return held
        engine = None
        most = HUGE_TOKENS
        if policy.entry is not None:
            cut = policy.entry.entry_cut(_origin(output), self._session.quotes_to_edit, output.likely)
            engine = output.forms.engine.get(cut)
            most = cut.most_tokens
        form = choose_entry(
            engine=engine,
            lossless=self._lossless(output),
            bounded=lambda: output.forms.bounded.get(most) if policy.has_limit else None,
            tokens_of=lambda form: tokens - form.saved,
            whole_tokens=lambda: tokens,
            most_tokens=most,
        )
        self._show(held, form)
        return held

    def _lossless(self, output: MeasuredOutput) -> Form | None:
        """Return the shortest lossless form that refers only to text still in the prompt."""
        if not self._policy.lossless:
            return None
        pointers = [one for one in output.forms.pointers if self._is_readable(one.points_to)][:MAX_EARLIER]
        return max((*pointers, output.forms.plain or _WHOLE), key=lambda form: form.saved)

    def _is_readable(self, index: int) -> bool:
        return index in self._held and self._held[index].form.is_readable

    def _old_cuts(self, request: MeasuredRequest) -> list[_Held]:
        """Return the outputs to mask in this request, oldest first."""
        policy = self._policy
        if policy.clear_over:
            old = [held for held in self._held.values() if held.output.request < request.index]
            keep = max(0, 3 - len(request.outputs))
            cleared = [one for one in old[: len(old) - keep] if not one.is_masked and one.output.tokens > MARKER_TOKENS]
            return cleared if request.prompt > policy.clear_over else []
        if policy.old is None:
            return []
        listed = [held for held in self._held.values() if held.output.is_listed]
        price = request.price
        moment = CutMoment(
            is_free=request.is_cold or (request.is_changed and policy.after_change),
            # Without tools, results come as the user's words do.
            is_user_turn=request.is_user_turn or not self._session.has_tools,
            has_tools=self._session.has_tools,
            edits_by_quoting=self._session.quotes_to_edit,
            prompt_tokens=int(self._prompt),
            read=price.read,
            write=price.write,
        )
        if not moment.allows_cuts(policy.old):
            return []
        return [listed[at] for at in choose_old(self._list_aged(listed, request), policy.old, moment).positions]

    def _list_aged(self, listed: Sequence[_Held], request: MeasuredRequest) -> list[Aged]:
        last_try = {held.output.about: held.output.index for held in listed if held.output.about}
        files = [
            held.output for held in listed if sanitizer.shows_file(_origin(held.output)) and not held.output.failed
        ]
        last_shown = {file.path: file.index for file in files if file.path}
        saved_before = dict(self._saved_before())
        return [
            Aged(
                tokens=int(held.shown_tokens) if _can_age(held) else 0,
                is_unread=held.output.request == request.index,
                failed=held.output.failed and last_try.get(held.output.about, held.output.index) == held.output.index,
                is_referred=held.output.index in request.referred,
                shows_file=sanitizer.shows_file(_origin(held.output)),
                is_superseded=last_shown.get(held.output.path, held.output.index) > held.output.index,
                place=int(held.output.place - saved_before[held.output.index] - self._summarized + self._added),
                is_cached=not request.is_cold and held.output.place < request.read,
            )
            for held in listed
        ]

    def _saved_before(self) -> Iterator[tuple[int, float]]:
        """Yield each output in the prompt, and the tokens that are saved before it."""
        saved = 0.0
        for index, held in sorted(self._held.items()):
            yield index, saved
            saved += held.form.saved

    def _compress(self, request: MeasuredRequest) -> bool:
        """Let a summary take the place of old exchanges if the window is nearly full, and pay for it."""
        preset = self._policy.compression
        window = self._window
        if preset is None or window is None or self._size(request) < window * preset.threshold_percentage / 100:
            return False
        before = self._size(request)
        best = (0, 0.0, 0.0)
        for at in self._places_to_cut(request, preset.keep_exchanges):
            removed = self._text_before(at) + sum(held.shown_tokens for held in self._outputs_before(at))
            if removed >= LEAST_REMOVED:
                best = (at, removed, min(preset.summary_tokens, removed / SUMMARY_SHARE))
            if before - best[1] + best[2] <= TARGET * window:
                break
        at, removed, summary = best
        if removed - summary < LEAST_SAVED * before:
            return False
        self._summarized += self._text_before(at)
        for held in self._outputs_before(at):
            self._show(held, Form(held.output.tokens), is_masked=True)
        self._added += summary
        self._cut_at = at
        self.figures.compressions += 1
        if preset.asks_provider:
            self.figures.extra_turns += 1
            self._count(request, removed, 0.0, summary, 1.0)
        return True

    def _places_to_cut(self, request: MeasuredRequest, keep: int) -> Iterator[int]:
        """Yield the requests before which the history can end, those that keep most first."""
        past = self._session.requests[self._cut_at + 1 : request.index + 1]
        turns = [one.index for one in past if one.is_user_turn]
        yield from turns[-keep - 1 :]
        last = turns[-1] if turns else 0
        yield from [one.index for one in past if one.index > last][-keep:]

    def _text_before(self, at: int) -> float:
        """Return the tokens of all messages before a request, without outputs and summarized messages."""
        request = self._session.requests[at]
        outputs = sum(held.output.tokens for held in self._outputs_before(at))
        whole = request.prompt - request.user - sum(output.tokens for output in request.outputs)
        return max(whole - self._session.fixed - outputs - self._summarized, 0.0)

    def _outputs_before(self, at: int) -> list[_Held]:
        return [held for held in self._held.values() if held.output.request < at]

    def _place(self, output: MeasuredOutput) -> float:
        """Return the number of tokens before an output under the policy."""
        before = sum(held.form.saved for at, held in self._held.items() if at < output.index)
        return output.place - before - self._summarized + self._added

    def _age(self, held: _Held) -> None:
        output = held.output
        form = _all_but(output, PLACEHOLDER_TOKENS) if self._policy.clear_over else output.forms.aged
        self._show(held, form, is_masked=True)

    def _renew(self, gone: set[int]) -> None:
        """Show again the outputs that referred to one that is now cut."""
        for held in self._held.values():
            if held.form.points_to in gone and held.output.index not in gone:
                self._show_whole(held)
                self._show(held, self._lossless(held.output))

    def _show_whole(self, held: _Held) -> None:
        self._saved -= held.form.saved
        held.form = _WHOLE

    def _show(self, held: _Held, form: Form | None, is_masked: bool = False) -> None:
        if form is not None and form.saved > held.form.saved:
            self._saved += form.saved - held.form.saved
            held.form = form
            held.is_masked = is_masked
            self._cut.add(held.output.index)
            self.figures.cut = len(self._cut)

    def _pay(self, request: MeasuredRequest, prompt: float, valid: float) -> None:
        if request.is_hit and self._whole_prompt:
            read = min(1.0, request.read / self._whole_prompt) * min(self._prompt, valid)
        else:
            read = min(request.read, valid or request.read)
        self.figures.largest = max(self.figures.largest, prompt)
        self.figures.too_long += self._window is not None and prompt > self._window
        self._count(request, prompt, min(read, prompt), request.output, request.price.write)

    def _count(self, request: MeasuredRequest, prompt: float, read: float, output: float, write: float) -> float:
        """Add a request to the figures, and return its price; `write` is that of a token that is not read."""
        figures = self.figures
        price = request.price
        usd = (price.read * read + write * (prompt - read) + price.output * output) * price.usd
        figures.input += prompt
        figures.cached += read
        figures.written += prompt - read if write > 1 else 0.0
        figures.output += output
        figures.cost_usd += usd
        return usd

    def _read_back(self, request: MeasuredRequest, prompt: float) -> None:
        """Pay for an extra turn if the answer uses lines that are not shown."""
        needed: dict[int, _Held] = {}
        for use in request.uses:
            held = self._held.get(use.output)
            if held is not None and use.output not in self._read_whole and _is_hidden(held, use.line):
                needed[use.output] = held
                self.figures.lost.append(Lost(request.index, held.output.tool, use.line, use.by))
        if not needed:
            return
        self._harmed.update(needed)
        # Only a part of a long masked output is recovered; a later use may need another part.
        self._read_whole.update(
            at for at, held in needed.items() if not held.is_masked or held.output.tokens <= READ_BACK_TOKENS
        )
        call = len(needed) * CALL_TOKENS
        read = call + sum(map(_hidden_tokens, needed.values()))
        self.figures.extra_turns += 1
        self.figures.recoveries += len(needed)
        self.figures.harmed = len(self._harmed)
        self.figures.recovery_usd += self._count(request, prompt + read, prompt, call, request.price.write)
        self._added += read
        self._prompt += read


def _origin(output: MeasuredOutput) -> Origin:
    return Origin(output.tool, command=output.about)


def _can_age(held: _Held) -> bool:
    form = held.output.forms.aged
    return form is not None and form.saved > held.form.saved


def _all_but(output: MeasuredOutput, tokens: int) -> Form:
    """Return the form of an output of which only a marker is shown."""
    return Form(output.tokens - tokens)


def _is_hidden(held: _Held, line: str) -> bool:
    return held.is_masked or line in held.form.hidden


def _hidden_tokens(held: _Held) -> float:
    whole = min(held.output.tokens, READ_BACK_TOKENS)
    return whole if held.is_masked else min(whole, held.form.gap)


def baseline(session: MeasuredSession) -> float:
    """Return the cost of the session as recorded."""
    return simulate(session, OFF).cost_usd
