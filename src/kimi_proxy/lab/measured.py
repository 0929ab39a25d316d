"""A session in tokens and prices: what each request read, wrote and answered, and what each output could be cut to."""

import re
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kimi_proxy.core import tokens
from kimi_proxy.features.accounting import MILLION, Prices
from kimi_proxy.features.models import known as known_models
from kimi_proxy.features.models.known import CacheRules, cache_rules
from kimi_proxy.features.sanitizer.plan import CallHistory, MadeCall, origin_of, own_words
from kimi_proxy.features.sanitizer.policy import POLICIES, likely_used
from kimi_proxy.features.sanitizer.stage import hint
from kimi_proxy.features.tool_weights import ToolWeight, weigh_tools
from kimi_proxy.lab.forms import MIN_LISTED_CHARS, Entering, FormsBuilder, OutputForms
from kimi_proxy.lab.transcripts.claude_code import AGENT as CLAUDE_CODE
from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, CallOutput, ProviderUsage, Transcript
from kimi_proxy.lab.used_lines import LineUse, uses

ADDRESS = "http://127.0.0.1:8000"  # of the proxy, for models that have no tool of ours
DROP = 0.6  # a prompt that shrank below this share was compacted, whether the agent reports it or not
HIT = 0.5  # a request that read this share of the one before found it in the cache
PARTIAL = 0.7  # an output count below this share of the text was recorded before the answer was complete
LEAST_MISS_TOKENS = 1024  # providers cache in steps, and clients move their marks: less is no miss
HOUR_S = 3600.0
STAND_IN = "claude-sonnet-4-5"  # the model whose prices replace missing ones
FOR_AN_HOUR = "1h"

# Why something had to be written to the prompt cache again.
PAUSE, LONG_PAUSE = "expired in a pause of up to an hour", "expired in a longer pause"
SWITCHED, COMPACTED = "another model", "the conversation was compacted"
CHANGED, DROPPED = "lost while warm: the client changed its prompt", "lost while warm: provider or client"

LONG_ARGUMENT_TOKENS = 200
LEAST_GROWN = 300  # tokens that a prompt grew by, for its growth to be compared
LEAST_SAMPLES = 3
PLAUSIBLE = 0.8  # of the samples have to be in these bounds
LEAST_SCALE, MOST_SCALE = 0.8, 2.2

LEAST_ENTRY_TOKENS = min(policy.entry_tokens for policy in POLICIES.values())

CountTokens = Callable[[str], int]

# Arguments that contain text to write into a file: `content`, `new_string`, `file_text` and so on.
_WRITES = re.compile(r'"(?:content|new_?(?:[sS]tr|[tT]ext)\w*|file_text|patch|old_?(?:[sS]tr|[tT]ext)\w*)"')
_QUOTE = re.compile(r'"old_?(?:[sS]tr|[tT]ext)')  # old_string, oldString, old_str, oldText


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Token prices of a model: `usd` is for a plain input token, the others are multiples of it."""

    usd: float
    read: float  # from the prompt cache
    write: float
    output: float

    @classmethod
    def of(cls, prices: Prices) -> "TokenPrice":
        plain = prices.input or 1e-9  # so that multiples exist
        return cls(plain / MILLION, prices.cached / plain, prices.cache_write / plain, prices.output / plain)


def price_of(model: str) -> TokenPrice:
    """Return the list price of a model for a cache of the usual life, or that of STAND_IN if the list has none."""
    return _price(model, "")


def is_priced(model: str) -> bool:
    row = known_models.find(model)
    return row is not None and bool(row.input_usd and row.output_usd)


@lru_cache(maxsize=1000)
def _price(model: str, ttl: str) -> TokenPrice:
    row = known_models.find(model if is_priced(model) else STAND_IN)
    if row is None or row.input_usd is None or row.output_usd is None:
        raise LookupError(f"the list of models has no price for {STAND_IN}")
    rules = cache_rules("", model, ttl)
    return TokenPrice(row.input_usd / MILLION, rules.read, rules.write, row.output_usd / row.input_usd)


@dataclass(slots=True)
class MeasuredOutput:
    """All tokens are the provider's. `place` is the number of tokens before it in the prompt."""

    index: int
    request: int
    tool: str
    tokens: float
    place: float
    used_tokens: float = 0.0
    is_listed: bool = True  # the sanitizer looks at it: it is long enough
    about: str = ""  # the command or file that the call named
    path: str = ""
    failed: bool = False
    likely: float | None = None  # the learned probability that a line of it is used
    forms: OutputForms = field(default_factory=OutputForms)


@dataclass(slots=True)
class MeasuredRequest:
    index: int
    at: float
    prompt: float
    read: float  # from the prompt cache
    output: float
    price: TokenPrice
    is_hit: bool = False
    is_cold: bool = False  # the cache must have expired: a long pause, or another model
    is_changed: bool = False  # the client changed earlier messages, so only `read` tokens were still cached
    is_reset: bool = False  # the prompt contains none of the previous conversation
    is_compacted: bool = False  # the client has put a summary in place of what was before
    is_user_turn: bool = False
    outputs: list[MeasuredOutput] = field(default_factory=list)
    uses: list[LineUse] = field(default_factory=list)
    miss: "CacheMiss | None" = None
    referred: frozenset[int] = frozenset()  # earlier outputs whose file the newest words name
    # Tokens of the parts of the prompt and the answer, to show where the money went.
    user: float = 0.0
    said: float = 0.0
    calls: float = 0.0
    thinking: float = 0.0
    kept_thinking: float = 0.0  # of its answer, what later prompts carry
    drops_thinking: bool = False  # the provider left the thinking of earlier turns out of this prompt
    long_arguments: tuple[float, ...] = ()  # tokens of each long text that a call of its answer writes
    rules: CacheRules | None = None  # of the prompt cache, as the request before left it
    pause_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """The tokens that one request rewrote to the prompt cache, the cause, and the cost beyond a cache read."""

    request: int
    cause: str
    pause_s: float  # since the request before; 0 if the agent keeps no times
    tokens: float
    usd: float


@dataclass(slots=True)
class MeasuredSession:
    agent: str
    id: str
    source: str
    version: str
    is_sidechain: bool
    quotes_to_edit: bool  # one of its tools edits a file by quoting it
    has_tools: bool  # ours can be among them
    fixed: float  # tokens of the fixed beginning: system prompt, tools and so on
    requests: list[MeasuredRequest]
    tools: list[ToolWeight] = field(default_factory=list)  # in every request, if the session records them
    hour_premium_usd: float = 0.0  # what its caches for an hour cost more than caches for 5 minutes would have
    unpriced: frozenset[str] = frozenset()  # models that the list of prices does not have


def measure(
    transcript: Transcript,
    source: str = "",
    count: CountTokens = tokens.count,
    scale: float | None = None,
    price: TokenPrice | None = None,
) -> MeasuredSession:
    """Return `transcript` measured.

    `count` may cache its counts; `scale` is the ratio of the provider's tokens to its own; `price` replaces the list's.
    """
    scale = scale or _scale(transcript, count)
    # Claude Code offers its editor in every session, and few of its sub-agents do.
    offers_editor = transcript.agent == CLAUDE_CODE and not transcript.is_sidechain
    calls = (call for request in transcript.requests for call in request.calls)
    quotes = offers_editor or any(_QUOTE.search(call.arguments) for call in calls)
    session = MeasuredSession(
        agent=transcript.agent,
        id=transcript.id,
        source=source,
        version=transcript.version,
        is_sidechain=transcript.is_sidechain,
        quotes_to_edit=quotes,
        has_tools=transcript.has_tools,
        fixed=0.0,
        requests=[],
    )
    if price is None:
        models = {request.model for request in transcript.requests}
        session.unpriced = frozenset(model for model in models if not is_priced(model))
    _Measuring(transcript, session, scale, count, price).run()
    return session


class _Measuring:
    def __init__(
        self,
        transcript: Transcript,
        session: MeasuredSession,
        scale: float,
        count: CountTokens,
        price: TokenPrice | None,
    ) -> None:
        self._price = price
        self._ttl = ""  # for which the newest prefix was written
        self._transcript = transcript
        self._session = session
        self._scale = scale
        self._count = count
        self._keeps_cache_counts = any(r.usage and r.usage.cache_read for r in transcript.requests)
        self._forms = FormsBuilder(session.quotes_to_edit, self._weigh, "" if session.has_tools else hint(ADDRESS))
        self._files: dict[str, list[int]] = {}
        self._calls: dict[str, AgentCall] = {}
        self._words: list[str] = []
        self._history = CallHistory(session.quotes_to_edit)
        self._uses: dict[int, list[LineUse]] = {}
        self._of_output: dict[int, list[str]] = {}
        for use in uses(transcript):
            self._uses.setdefault(use.request, []).append(use)
            self._of_output.setdefault(use.output, []).append(use.line)
        self._outputs = 0

    def run(self) -> None:
        called = Counter(call.name for request in self._transcript.requests for call in request.calls)
        described = {name: self._weigh(text) for name, text in self._transcript.tools.items()}
        self._session.tools = weigh_tools(described, called)
        before: MeasuredRequest | None = None
        for index, request in enumerate(self._transcript.requests):
            for words in [own for text in request.user if request.is_user_turn and (own := own_words(text))]:
                self._words.append(words)
                self._history.user(words)
            made = self._request(index, request, before)
            self._session.requests.append(made)
            self._calls.update((call.id, call) for call in request.calls)
            self._history.answer(
                request.said, (MadeCall.of(call.id, call.name, call.arguments) for call in request.calls)
            )
            before = made

    def _request(self, index: int, request: AgentRequest, before: MeasuredRequest | None) -> MeasuredRequest:
        rules = cache_rules("", request.model, self._ttl)  # of the tokens that earlier requests left there
        weights = [self._weigh(output.text) for output in request.outputs]
        user = sum(map(self._weigh, request.user))
        said = self._weigh(request.said)
        thinking = self._weigh(request.thinking)
        arguments = [call.arguments for call in request.calls]
        calls = sum(map(self._weigh, arguments))
        new = sum(weights) + user
        usage = request.usage
        prompt = float(usage.prompt) if usage and usage.prompt else 0.0
        if before is None:
            fixed = self._weigh(self._transcript.instructions)
            self._session.fixed = max(prompt - new, 0.0) if prompt else fixed
        if not prompt:
            prompt = new + (self._session.fixed if before is None else before.prompt + before.said + before.calls)
        written = said + thinking + calls
        made = MeasuredRequest(
            index=index,
            at=request.at,
            prompt=prompt,
            read=0.0,
            output=float(usage.output) if usage and usage.output >= PARTIAL * written else written,
            price=self._price or self._listed_price(request.model, usage),
            is_compacted=request.is_compacted,
            is_user_turn=request.is_user_turn,
            uses=self._uses.get(index, []),
            user=user,
            said=said,
            calls=calls,
            thinking=thinking,
            long_arguments=tuple(filter(_is_long, map(self._weigh, filter(_WRITES.search, arguments)))),
            rules=rules,
        )
        if before is not None:
            _place_thinking(before, made, new)
        self._read_cache(made, request, before, rules)
        if made.is_reset:
            self._forms.forget()
            self._files.clear()
        made.referred = self._find_referred(made, request)
        self._place_outputs(made, request, weights)
        return made

    def _listed_price(self, model: str, usage: ProviderUsage | None) -> TokenPrice:
        """Return the price of a request; the mean price if it wrote caches of both lifetimes."""
        if usage and usage.cache_write_5m + usage.cache_write_1h:
            self._ttl = FOR_AN_HOUR if usage.cache_write_1h else ""
            if usage.cache_write_5m and usage.cache_write_1h:
                short = _price(model, "")
                long = _price(model, FOR_AN_HOUR)
                share = usage.cache_write_1h / (usage.cache_write_5m + usage.cache_write_1h)
                return replace(short, write=short.write + share * (long.write - short.write))
        return _price(model, self._ttl)

    def _read_cache(
        self, made: MeasuredRequest, request: AgentRequest, before: MeasuredRequest | None, rules: CacheRules
    ) -> None:
        """Determine the cached tokens from the provider's count, otherwise from the time since the previous request."""
        usage = request.usage
        if before is None:
            made.read = float(usage.cache_read) if usage else 0.0
            self._add_hour_premium(made, usage, pause_s=0.0)
            return
        made.is_reset = request.is_compacted or made.prompt < DROP * before.prompt
        made.pause_s = pause_s = max(made.at - before.at, 0.0) if before.at > 0 else 0.0
        is_switched = request.model != self._transcript.requests[made.index - 1].model
        made.is_cold = pause_s > rules.cold_after_s or is_switched
        if self._keeps_cache_counts and usage:
            made.read = float(usage.cache_read)
        elif not made.is_cold:
            made.read = min(self._session.fixed, made.prompt) if made.is_reset else before.prompt
        made.is_hit = not made.is_reset and made.read >= HIT * before.prompt
        # A provider that caches on its own also loses prefixes that did not change.
        warm = CHANGED if rules.match == "marks" else DROPPED
        cause = warm if not made.is_cold else LONG_PAUSE if pause_s > HOUR_S else PAUSE
        cause = COMPACTED if made.is_reset else SWITCHED if is_switched else cause
        self._add_miss(made, before, cause, pause_s)
        made.is_changed = made.miss is not None and cause == CHANGED
        self._add_hour_premium(made, usage, pause_s)

    def _add_miss(self, made: MeasuredRequest, before: MeasuredRequest, cause: str, pause_s: float) -> None:
        usage = self._transcript.requests[before.index].usage
        # Providers that charge for writes do not cache text after the last mark.
        unmarked = usage.input if usage and before.price.write > 1 and usage.prompt > usage.input else 0
        left = self._session.fixed if made.is_reset else before.prompt - unmarked
        again = min(left, made.prompt) - made.read
        if again >= LEAST_MISS_TOKENS:
            usd = again * (made.price.write - made.price.read) * made.price.usd
            made.miss = CacheMiss(made.index, cause, pause_s, again, usd)

    def _add_hour_premium(self, made: MeasuredRequest, usage: ProviderUsage | None, pause_s: float) -> None:
        """Add the premium of the one-hour write, minus the loss of a 5-minute cache in the pause."""
        model = self._transcript.requests[made.index].model
        short = _price(model, "")
        if usage and usage.cache_write_1h:
            more = _price(model, FOR_AN_HOUR).write - short.write
            self._session.hour_premium_usd += usage.cache_write_1h * more * short.usd
        if self._ttl == FOR_AN_HOUR and pause_s > cache_rules("", model, "").cold_after_s:
            self._session.hour_premium_usd -= made.read * (short.write - short.read) * short.usd

    def _place_outputs(self, made: MeasuredRequest, request: AgentRequest, weights: list[float]) -> None:
        place = made.prompt - made.user - sum(weights)
        for output, weight in zip(request.outputs, weights, strict=True):
            call = self._calls.get(output.call_id, AgentCall(output.call_id, "", ""))
            one = MeasuredOutput(self._outputs, made.index, call.name, weight, place)
            place += weight
            self._outputs += 1
            made.outputs.append(one)
            self._shorten(one, output, call)

    def _shorten(self, one: MeasuredOutput, output: CallOutput, call: AgentCall) -> None:
        lines = self._of_output.get(one.index, [])
        origin = origin_of(call.name, call.arguments)
        one.used_tokens = self._weigh("\n".join(lines)) if lines else 0.0
        one.is_listed = len(output.text) > MIN_LISTED_CHARS
        one.about = origin.command or origin.path
        one.path = origin.path
        one.failed = output.failed
        context = self._history.result(output.call_id, output.text, output.failed)
        if one.tokens > LEAST_ENTRY_TOKENS:
            one.likely = likely_used(output.text, context)
        entering = Entering(call, context, one.likely, self._words)
        one.forms = self._forms.make(one.index, output, entering, lines, one.tokens)
        if name := origin.path.replace("\\", "/").rpartition("/")[2]:
            self._files.setdefault(name, []).append(one.index)

    def _find_referred(self, made: MeasuredRequest, request: AgentRequest) -> frozenset[int]:
        """Return the outputs whose files the user's or the model's newest words name."""
        if not made.index:
            return frozenset()
        before = self._transcript.requests[made.index - 1]
        newest = "\n".join((*request.user, before.said, *(call.arguments for call in before.calls)))
        return frozenset(index for name, found in self._files.items() if name in newest for index in found)

    def _weigh(self, text: str) -> float:
        return self._scale * self._count(text) if text else 0.0


def _is_long(tokens: float) -> bool:
    return tokens > LONG_ARGUMENT_TOKENS


def _place_thinking(before: MeasuredRequest, made: MeasuredRequest, new: float) -> None:
    """Determine how much thinking the next prompt contains: the growth that nothing else explains."""
    grown = made.prompt - before.prompt - new - before.said - before.calls
    written = max(before.output - before.said - before.calls, 0.0)
    before.kept_thinking = min(max(grown, 0.0), written)
    made.drops_thinking = made.is_user_turn and grown < 0


def _scale(transcript: Transcript, count: CountTokens) -> float:
    """Return how many tokens the provider counts for one of ours: the median over how its prompts grew.

    An answer's own count is taken off, because it includes thinking that the session does not keep. Where that explains
    little, as with thinking that was not sent back, or with counts that were stored before the answer was complete, all
    that was added is compared.
    """
    grown: list[float] = []
    behind_answers: list[float] = []
    before: AgentRequest | None = None
    for request in transcript.requests:
        if before is not None and before.usage and request.usage and not request.is_compacted:
            new = sum(map(count, (*(output.text for output in request.outputs), *request.user)))
            said = count(before.said) + sum(count(call.arguments) for call in before.calls)
            more = request.usage.prompt - before.usage.prompt
            if new + said > LEAST_GROWN and more > 0:
                grown.append(more / (new + said))
            if new > LEAST_GROWN and request.outputs and not request.is_user_turn:
                written = max(before.usage.output, said + count(before.thinking))
                behind_answers.append((more - written) / new)
        before = request
    plausible = [ratio for ratio in behind_answers if LEAST_SCALE <= ratio <= MOST_SCALE]
    if len(plausible) >= LEAST_SAMPLES and len(plausible) >= PLAUSIBLE * len(behind_answers):
        return statistics.median(plausible)
    usual = 1.15 if known_models.maker(transcript.requests[0].model) == "anthropic" else 1.0
    return min(max(statistics.median(grown), LEAST_SCALE), 1.6) if len(grown) >= LEAST_SAMPLES else usual
