"""What a policy of cutting would have saved in a session, net: with the prompt cache, recoveries and extra turns paid.

Money is at list prices. The provider's own counts say what was read from its cache; where an agent keeps none, a
request reads what it shares with the one before, unless the pause was longer than the cache lives. Under a policy the
prompt is smaller by what is cut, and what comes after a cut in an old output has to be written to the cache again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kimi_proxy.features.sanitizer import policy as sanitizer
from kimi_proxy.features.sanitizer.policy import PolicyName
from kimi_proxy.lab.measured import READ_PRICE, MeasuredOutput, MeasuredRequest, MeasuredSession

MARKER_TOKENS = 40  # what stands in place of a masked output
PLACEHOLDER_TOKENS = 12  # what Anthropic puts in place of a cleared one
TOOL_TOKENS = 120  # of the tool that reads back, in every request
CALL_TOKENS = 60  # of a call that reads something back
READ_BACK_TOKENS = 2000  # of an output that was masked whole, at most
RESENT_PER_SAVED = 3  # a tool that joins late is worth the cache that it loses up to this


@dataclass(frozen=True, slots=True)
class SimulatedPolicy:
    """What is cut, and when. All thresholds are tokens."""

    name: str
    title: str
    lossless: bool = False
    entry_over: int = 0  # at entry the engine cuts outputs over this; 0 cuts none
    spares_quoted: bool = False  # but not reads of files where the agent edits by quoting, nor agents' reports
    mask_over: int = 0  # at entry outputs over this are masked whole
    oracle_over: int = 0  # at entry outputs over this lose the lines that are never used
    cold_keep: int | None = None  # when the cache has gone cold anyway, all outputs but so many are masked
    turn_requests: int = 0  # at a user's new turn old outputs are masked, if that pays within so many requests
    turn_keep: int = 10
    joins_late: bool = False  # the tool that reads back joins with the first cut, which loses the whole cache once
    clear_over: int = 0  # prompts over this lose all outputs but three, as by `clear_tool_uses`

    def cuts_at_entry(self, output: MeasuredOutput, quotes_to_edit: bool) -> bool:
        """Return whether the engine may cut an output as it comes in."""
        if not self.entry_over:
            return False
        return output.tokens > (
            sanitizer.HUGE_TOKENS
            if self.spares_quoted and sanitizer.is_quoted(output.tool, quotes_to_edit)
            else self.entry_over
        )

    @property
    def offers_tool(self) -> bool:
        """Whether the tool that reads back is there from the first request."""
        return bool(self.lossless or self.entry_over or self.mask_over or self.cold_keep is not None) and (
            not self.joins_late
        )


def _of_product(name: PolicyName) -> SimulatedPolicy:
    """Return what `[sanitizer] policy` does under that name."""
    real = sanitizer.POLICIES[name]
    entry = "never" if real.entry_tokens >= sanitizer.HUGE_TOKENS else f"over {real.entry_tokens:,}"
    quoted = " but what agents quote" if real.spares_quoted and entry != "never" else ""
    turns = f", turns within {real.pays_within} keep {real.keep_cached}" if real.pays_within else ""
    return SimulatedPolicy(
        name,
        f"lossless, engine {entry}{quoted}, cold cuts keep {real.keep_newest}{turns}",
        lossless=True,
        entry_over=real.entry_tokens,
        spares_quoted=real.spares_quoted,
        cold_keep=real.keep_newest,
        turn_requests=real.pays_within,
        turn_keep=real.keep_cached,
    )


CAREFUL, DEFAULT, DEEP = _of_product("careful"), _of_product("default"), _of_product("deep")
POLICIES = (
    SimulatedPolicy("today", "engine over 1,000, the tool joins with the first cut", entry_over=1000, joins_late=True),
    SimulatedPolicy("lossless", "lossless", lossless=True),
    SimulatedPolicy("cold", "cold cuts of all old outputs", cold_keep=0),
    CAREFUL,
    DEFAULT,
    DEEP,
    SimulatedPolicy("entry", "engine over 1,000 at entry", entry_over=1000),
    SimulatedPolicy("clear", "Anthropic's clear_tool_uses", clear_over=100_000),
    SimulatedPolicy("mask", "all over 200 masked at entry", mask_over=200),
    SimulatedPolicy("oracle 1000", "oracle: never-used lines, over 1,000", oracle_over=1000),
    SimulatedPolicy("oracle 200", "oracle: never-used lines, over 200", oracle_over=200),
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
    lost: list[Lost] = field(default_factory=list)


def simulate(session: MeasuredSession, policy: SimulatedPolicy) -> PolicyFigures:
    simulation = _Simulation(session, policy)
    for request in session.requests:
        simulation.step(request)
    return simulation.figures


@dataclass(slots=True)
class _Held:
    """An output in the prompt, and how it is shown there."""

    output: MeasuredOutput
    form: str = "whole"
    saved: float = 0.0


class _Simulation:
    def __init__(self, session: MeasuredSession, policy: SimulatedPolicy) -> None:
        self.figures = PolicyFigures()
        self._session = session
        self._policy = policy
        self._held: dict[int, _Held] = {}
        self._has_tool = policy.offers_tool
        self._added = float(TOOL_TOKENS if self._has_tool else 0)
        self._prompt = 0.0  # of the request before
        self._whole_prompt = 0.0  # as it was without the policy
        self._harmed: set[int] = set()
        self._read_whole: set[int] = set()
        self._cut: set[int] = set()

    def step(self, request: MeasuredRequest) -> None:
        if request.is_reset:
            self._held.clear()
            self._added = float(TOOL_TOKENS if self._has_tool else 0)
            self._prompt = self._whole_prompt = 0.0
        valid = self._prompt
        for output in request.outputs:
            self._held[output.index] = self._entered(output)
        if self._policy.joins_late and not self._has_tool:
            valid = self._joined([self._held[output.index] for output in request.outputs], valid)
        if cuts := self._old_cuts(request):
            valid = min(valid, self._place(cuts[0].output))
            for held in cuts:
                self._mask(held, PLACEHOLDER_TOKENS if self._policy.clear_over else MARKER_TOKENS)
        prompt = request.prompt - self._saved() + self._added
        self._pay(request, prompt, valid)
        self._prompt, self._whole_prompt = prompt, request.prompt
        self._read_back(request, prompt)

    def _entered(self, output: MeasuredOutput) -> _Held:
        policy, tokens = self._policy, output.tokens
        held = _Held(output)
        if policy.mask_over and tokens > policy.mask_over:
            self._mask(held, MARKER_TOKENS)
        elif policy.oracle_over and tokens > policy.oracle_over:
            self._show(held, "oracle", tokens - output.used_tokens - MARKER_TOKENS)
        elif output.engine_saved and policy.cuts_at_entry(output, self._session.quotes_to_edit):
            self._show(held, "engine", output.engine_saved)
        # The shorter of the two: what the engine leaves of a long file may be longer than all of it without numbers.
        if policy.lossless and all(self._is_readable(at) for at in output.lossless_targets):
            self._show(held, "lossless", output.lossless_saved)
        return held

    def _joined(self, new: list[_Held], valid: float) -> float:
        """Return what is left of the cache when the tool joins for new cuts; take cuts back that do not pay for it."""
        saved = sum(held.saved for held in new)
        if saved and self._prompt <= RESENT_PER_SAVED * saved:
            self._has_tool = True
            self._added += TOOL_TOKENS
            return 0.0
        for held in new:
            held.form, held.saved = "whole", 0.0
            self._cut.discard(held.output.index)
        self.figures.cut = len(self._cut)
        return valid

    def _is_readable(self, index: int) -> bool:
        return index in self._held and self._held[index].form in ("whole", "lossless")

    def _old_cuts(self, request: MeasuredRequest) -> list[_Held]:
        """Return the outputs to mask in this request, oldest first."""
        policy = self._policy
        old = [held for held in self._held.values() if held.output.request < request.index]
        if policy.clear_over:
            keep = max(0, 3 - len(request.outputs))
            return _cuttable(old[: len(old) - keep]) if request.prompt > policy.clear_over else []
        if policy.cold_keep is not None and request.is_cold:
            keep = max(0, policy.cold_keep - len(request.outputs))
            return _cuttable(old[: len(old) - keep])
        if policy.turn_requests and request.is_user_turn:
            keep = max(0, policy.turn_keep - len(request.outputs))
            return self._paying(request, _cuttable(old[: len(old) - keep]))
        return []

    def _paying(self, request: MeasuredRequest, cuts: list[_Held]) -> list[_Held]:
        """Return the newest of these cuts that pay most within the policy's number of requests; none if none do."""
        best, most, saved = len(cuts), 0.0, 0.0
        for at in range(len(cuts) - 1, -1, -1):
            saved += cuts[at].output.tokens - cuts[at].saved - MARKER_TOKENS
            behind = self._prompt - self._place(cuts[at].output) - saved
            gain = READ_PRICE * self._policy.turn_requests * saved
            net = gain - (request.write_price - READ_PRICE) * max(behind, 0.0)
            if net > most:
                best, most = at, net
        return cuts[best:]

    def _place(self, output: MeasuredOutput) -> float:
        """Return how many tokens stand before an output, as the policy has left them."""
        return output.place - sum(held.saved for at, held in self._held.items() if at < output.index) + self._added

    def _mask(self, held: _Held, left: int) -> None:
        self._show(held, "masked", held.output.tokens - left)

    def _show(self, held: _Held, form: str, saved: float) -> None:
        if saved > held.saved:
            held.form, held.saved = form, saved
            self._cut.add(held.output.index)
            self.figures.cut = len(self._cut)

    def _saved(self) -> float:
        return sum(held.saved for held in self._held.values())

    def _pay(self, request: MeasuredRequest, prompt: float, valid: float) -> None:
        if request.is_hit and self._whole_prompt:
            read = min(1.0, request.read / self._whole_prompt) * min(self._prompt, valid)
        else:
            read = min(request.read, valid or request.read)
        read = min(read, prompt)
        units = READ_PRICE * read + request.write_price * (prompt - read) + request.output_price * request.output
        self.figures.cost_usd += units * request.usd

    def _read_back(self, request: MeasuredRequest, prompt: float) -> None:
        """Pay for an extra turn if the answer uses lines that are not shown."""
        needed: dict[int, _Held] = {}
        for use in request.uses:
            held = self._held.get(use.output)
            if held is not None and use.output not in self._read_whole and self._is_hidden(held, use.line):
                needed[use.output] = held
                self.figures.lost.append(Lost(request.index, held.output.tool, use.line, use.by))
        if not needed:
            return
        self._harmed.update(needed)
        # Of a long masked output only a part comes back, and a later use may need another.
        self._read_whole.update(
            at for at, held in needed.items() if held.form == "engine" or held.output.tokens <= READ_BACK_TOKENS
        )
        call = len(needed) * CALL_TOKENS
        read = call + sum(map(self._hidden_tokens, needed.values()))
        units = READ_PRICE * prompt + request.output_price * call + request.write_price * read
        self.figures.extra_turns += 1
        self.figures.recoveries += len(needed)
        self.figures.harmed = len(self._harmed)
        self.figures.recovery_usd += units * request.usd
        self.figures.cost_usd += units * request.usd
        self._added += read
        self._prompt += read

    def _is_hidden(self, held: _Held, line: str) -> bool:
        if held.form == "engine":
            return line in held.output.engine_hidden
        if held.form == "lossless":
            return line in held.output.lossless_hidden
        return held.form == "masked"

    def _hidden_tokens(self, held: _Held) -> float:
        whole = min(held.output.tokens, READ_BACK_TOKENS)
        return min(whole, held.output.engine_gap) if held.form == "engine" else whole


def _cuttable(held: Iterable[_Held]) -> list[_Held]:
    """Return those that are not masked yet and long enough for it to save something."""
    return [one for one in held if one.form != "masked" and one.output.tokens - one.saved > 2 * MARKER_TOKENS]


def baseline(session: MeasuredSession) -> float:
    """Return what the session cost as it was."""
    return simulate(session, SimulatedPolicy("none", "as it was")).cost_usd


def by_policy(
    session: MeasuredSession, policies: Sequence[SimulatedPolicy] = POLICIES
) -> Iterator[tuple[str, PolicyFigures]]:
    for policy in policies:
        yield policy.name, simulate(session, policy)
