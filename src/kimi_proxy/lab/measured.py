"""A session in tokens and prices: what each request read, wrote and answered, and what each output could be cut to."""

import re
import statistics
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kimi_proxy.core import tokens
from kimi_proxy.features.clients.tools import ToolWeight, weighed
from kimi_proxy.features.sanitizer.history import CallHistory, MadeCall
from kimi_proxy.features.sanitizer.plan import origin_of, own_words
from kimi_proxy.features.sanitizer.policy import POLICIES, likely_used
from kimi_proxy.features.sanitizer.stage import hint
from kimi_proxy.lab.forms import MIN_LISTED_CHARS, Entering, FormsBuilder, OutputForms
from kimi_proxy.lab.transcripts.transcript import AgentCall, AgentRequest, CallOutput, ProviderUsage, Transcript
from kimi_proxy.lab.used_lines import LineUse, uses

READ_PRICE = 0.1  # of reading from the prompt cache, with 1 for a plain input token
# How long a cache lives without use: Anthropic's as it was written, others' an hour. In public sessions of Codex 60 to
# 85 % of the requests after pauses of 5 to 60 minutes found it, none after longer ones; of Claude Code's with the cache
# of 5 minutes 15 % after 5 to 10, none after longer ones.
FIVE_MINUTES_S, HOUR_S = 300.0, 3600.0
ADDRESS = "http://127.0.0.1:8000"  # of the proxy, for models that have no tool of ours
DROP = 0.6  # a prompt that has shrunk below this share has been compacted, whether or not the agent says so
HIT = 0.5  # a request that read this share of the one before found it in the cache

LEAST_ENTRY_TOKENS = min(policy.entry_tokens for policy in POLICIES.values())

CountTokens = Callable[[str], int]

# List prices: USD for a million input tokens, and what an output token costs in input tokens. The first that fits.
_PRICES: tuple[tuple[re.Pattern[str], float, float], ...] = (
    (re.compile(r"claude-(?:3-)?opus(?!-4-[5-9])|claude-opus-4-[01]"), 15.0, 5.0),
    (re.compile(r"opus"), 5.0, 5.0),
    (re.compile(r"sonnet"), 3.0, 5.0),
    (re.compile(r"haiku"), 1.0, 5.0),
    (re.compile(r"gpt|codex|\bo\d"), 1.25, 8.0),
    (re.compile(r"gemini"), 2.0, 6.0),
    (re.compile(r"kimi|k2|k3"), 0.6, 4.2),
)
_QUOTE = re.compile(r'"old_?(?:[sS]tr|[tT]ext)')  # old_string, oldString, old_str, oldText
_OTHER_PRICE = (3.0, 5.0)
_WRITES_COST = re.compile(r"claude|opus|sonnet|haiku")


@dataclass(slots=True)
class MeasuredOutput:
    """All tokens are the provider's. `place` is how many stand before it in the prompt."""

    index: int
    request: int
    tool: str
    tokens: float
    place: float
    used_tokens: float = 0.0
    is_listed: bool = True  # the sanitizer looks at it: it is long enough
    about: str = ""  # the command or file that the call named
    failed: bool = False
    likely: float | None = None  # how likely a line of it is to be used, by what was learned
    forms: OutputForms = field(default_factory=OutputForms)


@dataclass(slots=True)
class MeasuredRequest:
    index: int
    at: float
    prompt: float
    read: float  # from the prompt cache
    output: float
    usd: float  # for one input token
    output_price: float
    write_price: float
    is_hit: bool = False
    is_cold: bool = False  # what was cached must have been forgotten: a long pause, or another model
    is_reset: bool = False  # nothing of the conversation before is in this prompt
    is_user_turn: bool = False
    outputs: list[MeasuredOutput] = field(default_factory=list)
    uses: list[LineUse] = field(default_factory=list)
    referred: frozenset[int] = frozenset()  # earlier outputs whose file the newest words name
    # What the parts of the prompt and the answer weigh, to show where the money went.
    user: float = 0.0
    said: float = 0.0
    calls: float = 0.0
    thinking: float = 0.0


@dataclass(slots=True)
class MeasuredSession:
    agent: str
    id: str
    source: str
    is_sidechain: bool
    quotes_to_edit: bool  # it has a tool that edits a file by quoting what is there
    has_tools: bool  # ours can be among them
    fixed: float  # tokens of the system prompt, the tools and whatever else every request begins with
    requests: list[MeasuredRequest]
    tools: list[ToolWeight] = field(default_factory=list)  # that every request describes, where the session says so


def measure(
    transcript: Transcript, source: str = "", count: CountTokens = tokens.count, scale: float | None = None
) -> MeasuredSession:
    """Return `transcript` measured.

    `count` may remember what it has counted; `scale` is how many tokens the provider counts for one of its own.
    """
    scale = scale or _scale(transcript, count)
    quotes = any(_QUOTE.search(call.arguments) for request in transcript.requests for call in request.calls)
    has_tools = transcript.has_tools
    session = MeasuredSession(
        transcript.agent, transcript.id, source, transcript.is_sidechain, quotes, has_tools, 0.0, []
    )
    _Measuring(transcript, session, scale, count).run()
    return session


class _Measuring:
    def __init__(self, transcript: Transcript, session: MeasuredSession, scale: float, count: CountTokens) -> None:
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
        self._session.tools = weighed(described, called)
        before: MeasuredRequest | None = None
        first_model = self._transcript.requests[0].model
        life_s = FIVE_MINUTES_S if _WRITES_COST.search(first_model) else HOUR_S
        for index, request in enumerate(self._transcript.requests):
            for words in [own for text in request.user if request.is_user_turn and (own := own_words(text))]:
                self._words.append(words)
                self._history.user(words)
            made = self._request(index, request, before, life_s)
            self._session.requests.append(made)
            if request.usage and request.usage.cache_write_1h + request.usage.cache_write_5m:
                life_s = HOUR_S if request.usage.cache_write_1h else FIVE_MINUTES_S
            self._calls.update((call.id, call) for call in request.calls)
            self._history.answer(request.said, (MadeCall(call.id, call.name, call.arguments) for call in request.calls))
            before = made

    def _request(
        self, index: int, request: AgentRequest, before: MeasuredRequest | None, life_s: float
    ) -> MeasuredRequest:
        usd, output_price = price_of(request.model)
        weights = [self._weigh(output.text) for output in request.outputs]
        user = sum(map(self._weigh, request.user))
        said, thinking = self._weigh(request.said), self._weigh(request.thinking)
        calls = sum(self._weigh(call.arguments) for call in request.calls)
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
            output=max(usage.output if usage else 0.0, written),
            usd=usd,
            output_price=output_price,
            write_price=_write_price(request.model, usage, before),
            is_user_turn=request.is_user_turn,
            uses=self._uses.get(index, []),
            user=user,
            said=said,
            calls=calls,
            thinking=thinking,
        )
        self._cache(made, request, before, life_s)
        if made.is_reset:
            self._forms.forget()
            self._files.clear()
        made.referred = self._referred(made, request)
        self._place_outputs(made, request, weights)
        return made

    def _cache(
        self, made: MeasuredRequest, request: AgentRequest, before: MeasuredRequest | None, life_s: float
    ) -> None:
        """Find out what was cached, from the provider's count or else from the time since the request before."""
        if before is None:
            made.read = float(request.usage.cache_read) if request.usage else 0.0
            return
        made.is_reset = request.is_compacted or made.prompt < DROP * before.prompt
        model_before = self._transcript.requests[made.index - 1].model
        is_paused = before.at > 0 and made.at - before.at > life_s
        made.is_cold = is_paused or request.model != model_before
        if self._keeps_cache_counts and request.usage:
            made.read = float(request.usage.cache_read)
        elif not made.is_cold:
            made.read = min(self._session.fixed, made.prompt) if made.is_reset else before.prompt
        made.is_hit = not made.is_reset and made.read >= HIT * before.prompt

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
        one.about, one.failed = origin.command or origin.path, output.failed
        context = self._history.result(output.call_id, output.text, output.failed)
        if one.tokens > LEAST_ENTRY_TOKENS:
            one.likely = likely_used(output.text, context)
        entering = Entering(call, context, one.likely, self._words)
        one.forms = self._forms.make(one.index, output, entering, lines, one.tokens)
        if name := origin.path.replace("\\", "/").rpartition("/")[2]:
            self._files.setdefault(name, []).append(one.index)

    def _referred(self, made: MeasuredRequest, request: AgentRequest) -> frozenset[int]:
        """Return the outputs whose files the user's or the model's newest words name."""
        if not made.index:
            return frozenset()
        before = self._transcript.requests[made.index - 1]
        newest = "\n".join((*request.user, before.said, *(call.arguments for call in before.calls)))
        return frozenset(index for name, found in self._files.items() if name in newest for index in found)

    def _weigh(self, text: str) -> float:
        return self._scale * self._count(text) if text else 0.0


def price_of(model: str) -> tuple[float, float]:
    """Return the list price of an input token in USD, and what an output token costs in input tokens."""
    per_million, output = next(((usd, out) for form, usd, out in _PRICES if form.search(model)), _OTHER_PRICE)
    return per_million / 1e6, output


def _write_price(model: str, usage: ProviderUsage | None, before: MeasuredRequest | None) -> float:
    """Return what it costs to write to the cache: only Anthropic asks for more than for plain input."""
    if usage and usage.cache_write_1h:
        return 2.0
    if usage and usage.cache_write_5m:
        return 1.25
    return write_price_of(model) if before is None else before.write_price


def write_price_of(model: str) -> float:
    """Return what the makers of a model ask for writing to the cache for five minutes, with 1 for a plain token."""
    return 1.25 if _WRITES_COST.search(model) else 1.0


def _scale(transcript: Transcript, count: CountTokens) -> float:
    """Return how many tokens the provider counts for one of ours: the median over how its prompts grew."""
    grown: list[float] = []
    before: AgentRequest | None = None
    for request in transcript.requests:
        if before is not None and before.usage and request.usage and not request.is_compacted:
            texts = (*(output.text for output in request.outputs), *request.user, before.said)
            ours = sum(map(count, texts)) + sum(count(call.arguments) for call in before.calls)
            more = request.usage.prompt - before.usage.prompt
            if ours > 300 and more > 0:
                grown.append(more / ours)
        before = request
    usual = 1.15 if any(_WRITES_COST.search(r.model) for r in transcript.requests[:1]) else 1.0
    return min(max(statistics.median(grown), 0.8), 1.6) if len(grown) >= 3 else usual
