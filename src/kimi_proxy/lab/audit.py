"""The audit of past sessions: where the money went, why prompt caches missed, and what policies would have saved."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

from kimi_proxy.core import tokens
from kimi_proxy.features.tool_weights import DescribedTools, by_server, client_of, weigh_tools
from kimi_proxy.lab.measured import CacheMiss, MeasuredRequest, MeasuredSession, measure
from kimi_proxy.lab.savings import CHOICES, DEFAULT, OPTIONS, Lost, PolicyFigures, SimulatedPolicy, baseline, simulate
from kimi_proxy.lab.transcripts.claude_code import AGENT as CLAUDE_CODE
from kimi_proxy.lab.transcripts.places import TranscriptPlace, load

PROCESSES = 2
LOST_SHOWN = 5  # used lines that the default would have cut, kept for each session
MAX_COUNTS = 50_000  # about 5 MB in each process
SIZES = ((4000, "outputs over 4,000 tokens"), (1000, "outputs of 1,000 to 4,000"), (200, "outputs of 200 to 1,000"))
SMALL = "outputs under 200"
FIXED, USER, AGAIN, OTHER = "fixed beginning", "user's words", "earlier answers, read again", "other"
# What a session loses counts from here on; less is noise, and what our tool costs where nothing is cut.
LEAST_LOSS, LEAST_LOSS_USD = 0.005, 0.01
MOST_PARTS = 1.05  # of the cost; where parts add up to more, texts and the provider's counts do not fit together
THINKING, TEXT, CALLS = "thinking, written", "text, written", "calls, written"

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class ToolCost:
    """The cost of a tool's description in all requests, and the number of its calls."""

    usd: float
    tokens: float  # in all requests
    calls: int


@dataclass(slots=True)
class SessionAudit:
    """The summary of a session that has been read: figures, and a few of its lines."""

    agent: str
    version: str
    source: str
    id: str
    is_sidechain: bool
    began_at: float
    requests: int
    outputs: int
    used_outputs: int  # of which a line was used
    cost_usd: float
    spent: dict[str, float]
    tools: dict[str, float]
    described: dict[str, ToolCost]
    policies: dict[str, PolicyFigures]
    options_usd: dict[str, float]  # what settings of `[cache]` would have saved beyond the default
    lost: list[Lost]
    misses: list[CacheMiss]
    hour_premium_usd: float  # what caches for an hour cost more than caches for 5 minutes would have
    unpriced: frozenset[str]

    @property
    def whole_id(self) -> str:
        """Return the id of the session that it is, or that it works for as a sub-agent."""
        return self.id.rpartition("/")[0] if self.is_sidechain else self.id

    def saved_usd(self, policy: str) -> float:
        return self.cost_usd - self.policies[policy].cost_usd


@dataclass(slots=True)
class WholeSession:
    """A session with its sub-agents."""

    agent: str
    id: str
    parts: list[SessionAudit]

    @property
    def cost_usd(self) -> float:
        return sum(part.cost_usd for part in self.parts)

    def saved_share(self, policy: str) -> float:
        """Return the share of its cost that a policy would have saved; negative if it would have cost more."""
        return sum(part.saved_usd(policy) for part in self.parts) / self.cost_usd if self.cost_usd else 0.0

    def is_losing(self, policy: str) -> bool:
        saved = self.saved_share(policy)
        return saved <= -LEAST_LOSS and saved * self.cost_usd <= -LEAST_LOSS_USD


@dataclass(slots=True)
class PolicyTotals:
    """A policy over many sessions; shares are between 0 and 1."""

    policy: SimulatedPolicy
    saved: float
    saved_usd: float
    extra_turns_per_100: float
    recovery_usd: float
    harmed: float  # of the outputs with used lines
    losing: float  # of the sessions, those that lose at least LEAST_LOSS and LEAST_LOSS_USD
    losing_much: float  # and those that lose more than 1 %
    worst: float  # the saving of the session that loses most
    median: float  # of the sessions' savings
    compactions: int  # by the client
    put_off: int  # of these


@dataclass(slots=True)
class MissTotals:
    """All cache misses of one cause."""

    cause: str
    times: int
    median_pause_s: float
    tokens: float
    usd: float


@dataclass(slots=True)
class HourCaches:
    """The extra cost of one-hour caches for sub-agents, compared with five-minute caches."""

    sessions: int
    cost_usd: float  # of these sessions
    premium_usd: float


@dataclass(slots=True)
class Audit:
    sessions: list[SessionAudit] = field(default_factory=list)  # sub-agents among them
    policies: Sequence[SimulatedPolicy] = CHOICES
    left_out: int = 0  # sessions whose requests kimi-proxy has shortened

    def whole_sessions(self) -> list[WholeSession]:
        """Return the sessions, each with its sub-agents; a sub-agent whose session was not found is in none."""
        whole = {
            (one.agent, one.id): WholeSession(one.agent, one.id, [one]) for one in self.sessions if not one.is_sidechain
        }
        for one in self.sessions:
            if one.is_sidechain and (found := whole.get((one.agent, one.whole_id))):
                found.parts.append(one)
        return list(whole.values())

    @property
    def sub_agents(self) -> int:
        return sum(session.is_sidechain for session in self.sessions)

    def without(self, ids: Collection[str]) -> "Audit":
        """Leave out sessions that went through kimi-proxy, with their sub-agents.

        What was sent is shorter than what the agent stored, so neither its sizes nor its savings would be right.
        """
        gone = {session.whole_id for session in self.sessions if {session.id, session.whole_id} & set(ids)}
        kept = [session for session in self.sessions if session.whole_id not in gone]
        return Audit(kept, self.policies, self.left_out + len(gone))

    def losers(self) -> list[WholeSession]:
        """Return the sessions that would have cost more with the default, those that lose most first."""
        losing = [one for one in self.whole_sessions() if one.is_losing(DEFAULT.name)]
        return sorted(losing, key=lambda one: one.saved_share(DEFAULT.name))

    @property
    def parts_share(self) -> float:
        """Return the sum of the parts as a share of the cost; much above 1, the counts disagree."""
        return sum(self.cost_by_part().values()) / self.cost_usd if self.cost_usd else 0.0

    @property
    def cost_usd(self) -> float:
        return sum(session.cost_usd for session in self.sessions)

    @property
    def requests(self) -> int:
        return sum(session.requests for session in self.sessions)

    def cost_by_part(self) -> dict[str, float]:
        return _sum_up(session.spent for session in self.sessions)

    def cost_by_tool(self) -> dict[str, float]:
        return _sum_up(session.tools for session in self.sessions)

    def described_tools(self) -> list[tuple[DescribedTools, float]]:
        """Return the tools that requests described, by MCP server, each with what that cost; dearest first."""
        total: dict[str, ToolCost] = {}
        for session in self.sessions:
            for name, cost in session.described.items():
                one = total.setdefault(name, ToolCost(0.0, 0.0, 0))
                one.usd, one.tokens, one.calls = one.usd + cost.usd, one.tokens + cost.tokens, one.calls + cost.calls
        weights = weigh_tools(
            {name: cost.tokens for name, cost in total.items()}, {n: c.calls for n, c in total.items()}
        )
        usd: defaultdict[tuple[str, bool], float] = defaultdict(float)
        for weight in weights:
            usd[weight.server or weight.name, bool(weight.server)] += total[weight.name].usd
        found = by_server(weights, client_of(total))
        return sorted(((one, usd[one.name, one.is_server]) for one in found), key=lambda pair: -pair[1])

    def totals(self) -> list[PolicyTotals]:
        return [self._total(policy) for policy in self.policies] if self.sessions else []

    def misses(self) -> list[MissTotals]:
        """Return the tokens written to prompt caches again, by cause; most expensive first."""
        by_cause: dict[str, list[CacheMiss]] = {}
        for session in self.sessions:
            for miss in session.misses:
                by_cause.setdefault(miss.cause, []).append(miss)
        totals = [
            MissTotals(
                cause,
                len(found),
                statistics.median(miss.pause_s for miss in found),
                sum(miss.tokens for miss in found),
                sum(miss.usd for miss in found),
            )
            for cause, found in by_cause.items()
        ]
        return sorted(totals, key=lambda total: -total.usd)

    def options(self) -> dict[str, float]:
        """Return what settings of `[cache]` that are off by default would have saved beyond the default."""
        return _sum_up(session.options_usd for session in self.sessions)

    def hour_caches(self) -> HourCaches | None:
        """Return None if no sub-agent of Claude Code wrote such a cache, or if 5 minutes would have cost as much."""
        agents = (one for one in self.sessions if one.is_sidechain and one.agent == CLAUDE_CODE)
        having = [one for one in agents if one.hour_premium_usd]
        premium = sum(one.hour_premium_usd for one in having)
        return HourCaches(len(having), sum(one.cost_usd for one in having), premium) if premium > 0 else None

    def unpriced_models(self) -> list[str]:
        return sorted({model or "(no name)" for session in self.sessions for model in session.unpriced})

    def by_source(self) -> dict[str, "Audit"]:
        return self._split(lambda session: f"{session.source}: {session.agent}")

    def by_version(self) -> dict[str, "Audit"]:
        """Return the sessions by program and version, if known; most expensive first."""
        parts = self._split(lambda session: f"{session.agent} {session.version}".strip())
        return dict(sorted(parts.items(), key=lambda item: -item[1].cost_usd))

    def _split(self, name_of: Callable[[SessionAudit], str]) -> dict[str, "Audit"]:
        parts: dict[str, Audit] = {}
        for session in self.sessions:
            parts.setdefault(name_of(session), Audit(policies=self.policies)).sessions.append(session)
        return parts

    def _total(self, policy: SimulatedPolicy) -> PolicyTotals:
        figures = [session.policies[policy.name] for session in self.sessions]
        whole = [one for one in self.whole_sessions() if one.cost_usd]
        savings = [one.saved_share(policy.name) for one in whole]
        count = max(len(whole), 1)
        cost = self.cost_usd
        used = sum(session.used_outputs for session in self.sessions)
        saved = cost - sum(one.cost_usd for one in figures)
        return PolicyTotals(
            policy,
            saved / cost if cost else 0.0,
            saved,
            100 * sum(one.extra_turns for one in figures) / max(self.requests, 1),
            sum(one.recovery_usd for one in figures),
            sum(one.harmed for one in figures) / max(used, 1),
            sum(one.is_losing(policy.name) for one in whole) / count,
            sum(one.is_losing(policy.name) and one.saved_share(policy.name) < -0.01 for one in whole) / count,
            min(savings, default=0.0),
            statistics.median(savings) if savings else 0.0,
            sum(one.compactions for one in figures),
            sum(one.put_off for one in figures),
        )


def audit(
    places: Sequence[TranscriptPlace],
    progress: Progress,
    processes: int = PROCESSES,
    policies: Sequence[SimulatedPolicy] = CHOICES,
) -> Audit:
    """Return the audit of all sessions in `places`; of a session that lies in several, the longest copy counts."""
    longest: dict[tuple[str, str], SessionAudit] = {}
    for found in _examine_all(places, progress, processes, policies):
        for session in found:
            key = (session.agent, session.id)
            if key not in longest or session.requests > longest[key].requests:
                longest[key] = session
    in_order = sorted(longest.values(), key=lambda session: (session.source, session.began_at, session.id))
    return Audit(in_order, policies)


def examine(place: TranscriptPlace, policies: Sequence[SimulatedPolicy]) -> list[SessionAudit]:
    """Return the sessions of a place, one after the other in memory."""
    return [_examine(measure(transcript, place.source, _count), policies) for transcript in load(place)]


def numbers_of(version: str) -> tuple[int, ...]:
    """Return a version such that newer ones sort after older ones."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def name_source(path: Path) -> tuple[str, Path]:
    """Return a path with the name that a person would give it."""
    folder = path.resolve()
    return (folder.parent if folder.name in (".git", "repo") else folder).name, path


def _examine_all(
    places: Sequence[TranscriptPlace], progress: Progress, processes: int, policies: Sequence[SimulatedPolicy]
) -> Iterator[list[SessionAudit]]:
    total = sum(place.size for place in places)
    done = 0
    if processes <= 1 or len(places) <= 1:
        for place in places:
            yield examine(place, policies)
            done += place.size
            progress(done, total)
        return
    # Largest first, so that no process is left alone at the end; few at a time, to limit memory.
    queue = iter(sorted(places, key=lambda place: -place.size))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running: dict[Future[list[SessionAudit]], int] = {}
        for place in queue:
            running[pool.submit(examine, place, policies)] = place.size
            if len(running) < 2 * processes:
                continue
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                done += running.pop(future)
                yield future.result()
                progress(done, total)
        for future in list(running):
            done += running[future]
            yield future.result()
            progress(done, total)


_COUNTS: dict[int, int] = {}


def _count(text: str) -> int:
    """Count tokens, and remember the count: sessions repeat their texts, and each is counted more than once."""
    name = hash(text)
    known = _COUNTS.get(name)
    if known is None:
        if len(_COUNTS) >= MAX_COUNTS:
            _COUNTS.clear()
        known = _COUNTS[name] = tokens.count(text)
    return known


def _examine(session: MeasuredSession, policies: Sequence[SimulatedPolicy]) -> SessionAudit:
    figures = {policy.name: simulate(session, policy) for policy in policies}
    lost = figures[DEFAULT.name].lost[:LOST_SHOWN]
    for one in figures.values():
        one.lost = []
    spent, tools = price_parts(session)
    return SessionAudit(
        agent=session.agent,
        version=session.version,
        source=session.source,
        id=session.id,
        is_sidechain=session.is_sidechain,
        began_at=session.requests[0].at,
        requests=len(session.requests),
        outputs=sum(len(request.outputs) for request in session.requests),
        used_outputs=len({use.output for request in session.requests for use in request.uses}),
        cost_usd=baseline(session),
        spent=spent,
        tools=tools,
        described=_price_tools(session),
        policies=figures,
        options_usd={
            setting: figures[DEFAULT.name].cost_usd - simulate(session, policy).cost_usd
            for setting, policy in OPTIONS.items()
        },
        lost=lost,
        misses=[request.miss for request in session.requests if request.miss],
        hour_premium_usd=session.hour_premium_usd,
        unpriced=session.unpriced,
    )


def price_parts(session: MeasuredSession) -> tuple[dict[str, float], dict[str, float]]:
    """Return the parts of a session's cost, and the cost of each tool's outputs."""
    spent: defaultdict[str, float] = defaultdict(float)
    tools: defaultdict[str, float] = defaultdict(float)
    lasting = _price_while_it_lasts(session.requests)
    for request, price in zip(session.requests, lasting, strict=True):
        spent[FIXED] += _price_fixed(session, request)
        spent[USER] += price * request.user
        for output in request.outputs:
            spent[next((name for over, name in SIZES if output.tokens > over), SMALL)] += price * output.tokens
            tools[output.tool or "unknown"] += price * output.tokens
        per_token = request.price.usd * request.price.output
        visible = request.said + request.calls
        share = min(request.output / visible, 1.0) if visible else 0.0  # our own weights may be a little more
        spent[TEXT] += per_token * share * request.said
        spent[CALLS] += per_token * share * request.calls
        spent[THINKING] += per_token * max(request.output - visible, 0.0)
    for request, following, price in zip(session.requests, session.requests[1:], lasting[1:], strict=False):
        if not following.is_reset:
            spent[AGAIN] += price * (request.said + request.calls)
    # Reminders and thinking that are in prompts and in no transcript.
    spent[OTHER] = max(baseline(session) - sum(spent.values()), 0.0)
    return dict(spent), dict(tools)


def _price_tools(session: MeasuredSession) -> dict[str, ToolCost]:
    per_token = sum(_price_fixed(session, request) for request in session.requests) / max(session.fixed, 1.0)
    count = len(session.requests)
    return {one.name: ToolCost(per_token * one.tokens, count * one.tokens, one.calls) for one in session.tools}


def _price_while_it_lasts(requests: Sequence[MeasuredRequest]) -> list[float]:
    """Return for each request the cost of a token that enters with it, until a compaction removes it."""
    prices: list[float] = []
    later = 0.0
    for at in range(len(requests) - 1, -1, -1):
        request = requests[at]
        prices.append(request.price.usd * request.price.write + later)
        before = requests[at - 1].prompt if at else 0.0
        share = min(1.0, request.read / before) if request.is_hit and before else 0.0
        again = share * request.price.read + (1 - share) * request.price.write
        later = 0.0 if request.is_reset else later + request.price.usd * again
    return prices[::-1]


def _price_fixed(session: MeasuredSession, request: MeasuredRequest) -> float:
    fixed = min(session.fixed, request.prompt)
    read = min(fixed, request.read)
    return request.price.usd * (request.price.read * read + request.price.write * (fixed - read))


def _sum_up(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for part in parts:
        for name, usd in part.items():
            total[name] += usd
    return dict(sorted(total.items(), key=lambda item: -item[1]))
